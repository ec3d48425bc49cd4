"""Sessions and captures from Python. GPUTRACE_BIN names gputrace, GPUTRACE_TEST_PROGRAM a program
with HIP calls (`hip_calls` of tests/workloads)."""

import importlib.util
import os
import pathlib
import subprocess
import threading

import pytest

import gputrace

RECORDER = os.environ["GPUTRACE_BIN"]
PROGRAM = os.environ["GPUTRACE_TEST_PROGRAM"]
HIP = ["HIP_RUNTIME_API"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A capture, and the calls that its session delivered."""
    path = tmp_path_factory.mktemp("kept") / "run.gtcap"
    env = {"WORKLOAD_LOG": str(path.parent)}
    session = gputrace.launch(
        [PROGRAM, "single", "20"], domains=HIP, keep=path, recorder=RECORDER, env=env
    )
    with session:
        events = list(session)
    assert path.exists()
    return path, events


def calls(events):
    return [event for event in events if isinstance(event, gputrace.Call)]


def test_a_session_delivers_calls_and_an_account(kept):
    _, events = kept
    names = {call.name for call in calls(events)}
    assert {"hipMalloc", "hipFree"} <= names
    account = events[-1]
    assert isinstance(account, gputrace.Account) and account.is_complete
    assert account.seen == account.written + account.unfinished + account.dropped
    assert account.dropped == 0
    malloc = next(call for call in calls(events) if call.name == "hipMalloc")
    assert malloc.end_ns >= malloc.begin_ns > 0
    assert list(malloc.arguments) == ["ptr", "size"]
    assert malloc.domain == HIP[0] and malloc.unfinished is None and not malloc.is_marker


def test_a_capture_has_the_same_calls(kept):
    path, events = kept
    capture = gputrace.read(path)
    assert capture.version == gputrace.__version__ and HIP[0] in capture.domains
    keys = [(call.name, call.begin_ns, call.correlation_id) for call in calls(events)]
    again = [(call.name, call.begin_ns, call.correlation_id) for call in calls(capture)]
    assert keys == again


def test_tables_have_the_same_rows(kept):
    path, events = kept
    capture = gputrace.read(path)
    table = capture.calls
    assert len(table) == len(calls(events)) and "duration" in table.columns
    frame = table.to_pandas()
    assert list(frame["name"]) == [call.name for call in calls(events)]
    assert list(frame["start"]) == [call.begin_ns for call in calls(events)]
    some = capture.table("calls", columns=["name", "duration"])
    assert some.columns == ["name", "duration"]
    assert some.to_arrow().num_rows == len(table)
    assert len(capture.kernels) == 0 and len(capture.copies) == 0
    with pytest.raises(KeyError, match="no column nothing"):
        capture.table("calls", columns=["nothing"])
    with pytest.raises(KeyError, match="no table nothing"):
        capture.table("nothing")


def test_a_running_process_is_followed_from_two_threads(tmp_path):
    env = {**os.environ, "WORKLOAD_LOG": str(tmp_path)}
    program = subprocess.Popen(
        [PROGRAM, "loop", "500"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert b"ready" in program.stdout.readline()
    seen = []
    with gputrace.attach(program.pid, domains=HIP, recorder=RECORDER) as session:
        assert any("recording" in line for line in session.lines())
        taking = threading.Thread(target=lambda: seen.extend(session))
        taking.start()
        with session.range("a range"):
            session.mark("a mark")
        assert session.flush(60)
        session.stop()
        taking.join()
    assert program.poll() is None
    program.stdin.close()
    assert program.wait() == 0
    ours = {call.name for call in calls(seen) if call.pid == os.getpid()}
    assert ours == {"a range", "a mark"}
    assert all(call.is_marker for call in calls(seen) if call.pid == os.getpid())
    assert any(call.pid == program.pid for call in calls(seen))


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(gputrace.Error) as raised:
        gputrace.read(tmp_path / "missing.gtcap")
    assert raised.value.cause == "capture"
    with pytest.raises(gputrace.Error) as raised:
        gputrace.attach(os.getpid(), recorder=RECORDER)
    assert raised.value.cause == "no_rocm"
    with pytest.raises(gputrace.Error, match="Builder|PATH|Install") as raised:
        gputrace.node(recorder=tmp_path / "missing")
    assert raised.value.cause == "start"
    with pytest.raises(ValueError, match="NOTHING"):
        gputrace.node(domains=["NOTHING"], recorder=RECORDER)
    with pytest.raises(ValueError):
        gputrace.launch([])


def test_operations_are_known():
    assert "hipLaunchKernel" in gputrace.operations("HIP_RUNTIME_API")


def test_the_example_compares_captures(kept, capsys):
    path, _ = kept
    example = pathlib.Path(__file__).parents[1] / "examples" / "find_regression.py"
    spec = importlib.util.spec_from_file_location("find_regression", example)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(path, path)
    # The program runs no kernels: a table without rows.
    assert "change_%" in capsys.readouterr().out
