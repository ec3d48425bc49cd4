"""Follow AMD GPU work of other processes, and read captures."""

from os import PathLike
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

__version__: str

class Error(Exception):
    """Why a session or a capture cannot be used. The text says what to do."""

    cause: str

class Call:
    """An API call or a marker. Times are ns of CLOCK_BOOTTIME."""

    name: str
    domain: Optional[str]
    is_marker: bool
    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    correlation_id: int
    parent_correlation_id: int
    external_correlation_id: Optional[int]
    unfinished: Optional[str]
    result: Optional[str]
    arguments: dict[str, str]

class Dispatch:
    """A kernel dispatch. `begin_ns` and `end_ns` are None if they are not known."""

    name: str
    pid: int
    tid: int
    correlation_id: int
    external_correlation_id: Optional[int]
    stream_id: int
    node_id: Optional[int]
    grid_size: list[int]
    workgroup_size: list[int]
    submitted_ns: int
    quality: str
    begin_ns: Optional[int]
    end_ns: Optional[int]
    begin_window: tuple[int, Optional[int]]
    end_window: tuple[int, Optional[int]]

class Copy:
    """A memory copy. `begin_ns` and `end_ns` are None if they are not known."""

    name: str
    bytes: int
    pid: int
    tid: int
    correlation_id: int
    external_correlation_id: Optional[int]
    stream_id: int
    submitted_ns: int
    quality: str
    begin_ns: Optional[int]
    end_ns: Optional[int]
    begin_window: tuple[int, Optional[int]]
    end_window: tuple[int, Optional[int]]

class Process:
    """A process, when it is first known or changes."""

    pid: int
    name: str
    command: list[str]

class Notice:
    """A remark of the recorder."""

    time_ns: int
    text: str

class Account:
    """What was seen, and what became of it: seen = written + unfinished + dropped."""

    is_complete: bool
    seen: int
    written: int
    unfinished: int
    dropped: int

Event = Union[Call, Dispatch, Copy, Process, Notice, Account]

class Range:
    """A range in a recording: a context manager."""

    def __enter__(self) -> Range: ...
    def __exit__(self, *exception: Any) -> bool: ...

class Session:
    """A running recording: a context manager, and an iterator over its events."""

    def __enter__(self) -> Session: ...
    def __exit__(self, *exception: Any) -> bool: ...
    def __iter__(self) -> Iterator[Event]: ...
    def __next__(self) -> Event: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def mark(self, text: str) -> None: ...
    def range(self, text: str) -> Range: ...
    def flush(self, seconds: float = 10.0) -> bool: ...
    def lines(self) -> list[str]: ...
    def finish(self) -> Optional[PathLike[str]]: ...

class Table:
    """A table of a capture. Libraries that know Arrow's PyCapsule interface take it as it is."""

    columns: list[str]
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
    def to_arrow(self) -> Any: ...
    def to_pandas(self) -> Any: ...

class Capture:
    """A capture in a file."""

    hostname: str
    version: str
    command: list[str]
    domains: list[str]
    calls: Table
    kernels: Table
    copies: Table
    def __iter__(self) -> Iterator[Event]: ...
    def table(self, name: str, columns: Optional[Sequence[str]] = None) -> Table: ...

def read(path: Union[str, PathLike[str]]) -> Capture: ...
def operations(domain: str) -> list[str]: ...
def attach(
    pid: int,
    *more: int,
    domains: Optional[Sequence[str]] = None,
    options: Optional[Sequence[str]] = None,
    keep: Union[str, PathLike[str], None] = None,
    recorder: Union[str, PathLike[str], None] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Session: ...
def launch(
    command: Sequence[Union[str, PathLike[str]]],
    *,
    domains: Optional[Sequence[str]] = None,
    options: Optional[Sequence[str]] = None,
    keep: Union[str, PathLike[str], None] = None,
    recorder: Union[str, PathLike[str], None] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Session: ...
def node(
    *,
    domains: Optional[Sequence[str]] = None,
    options: Optional[Sequence[str]] = None,
    keep: Union[str, PathLike[str], None] = None,
    recorder: Union[str, PathLike[str], None] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Session: ...
