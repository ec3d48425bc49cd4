//! The screen of a terminal: one snapshot, of which the user chooses what to see.
//!
//! It needs no colours. 80 columns and 24 lines suffice; columns that do not fit are left out, from
//! the right.

use std::{borrow::Cow, cmp::Ordering};

use gputrace_text::{Line, tables::Align};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line as Text,
    widgets::{self, Clear, Paragraph, Row, Table, TableState},
};

use crate::{
    group::GroupBy,
    jobs::Task,
    page::{self, texts},
    rows::{
        Cell, FUNCTIONS, GPUS, Heading, KERNELS, NOTHING, PROCESSES, QUEUES, function, gpu, group,
        groups, kernel, process, queue,
    },
    snapshot::{GroupRow, Snapshot},
};

/// Number of columns between two columns of a table.
const BETWEEN: u16 = 1;

/// The width below which a column of names is not made narrower.
const SHORTEST_NAME: u16 = 16;

/// Maximum number of lines of the table of GPUs, with its heading.
const GPU_LINES: u16 = 9;

/// What each key does.
const HELP: [&str; 17] = [
    "Tab, 1 2 3 4  processes, kernels, functions, queues",
    "g             processes, or their containers, pods, jobs, users",
    "Up, Down      choose a row",
    "Enter         only the process or the group of this row",
    "Escape        all processes, no filter",
    "s, S          sort by the next or previous column",
    "/             only rows with this text; Enter ends it",
    "Space         freeze, go on",
    "r             record the process of this row; again: end that",
    "d             ask flight recorders for a dump",
    "?, h          this help",
    "q, Ctrl-C     end",
    "",
    "BUSY %: time in which kernels ran. A range, if it is not",
    "known better. PENDING: dispatches that wait, run, or are over.",
    "SHARE %: of the BUSY of all processes. COST %: time that",
    "tracing takes of the threads.",
];

/// The table in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tab {
    #[default]
    Processes,
    Kernels,
    Functions,
    Queues,
}

impl Tab {
    const ALL: [Self; 4] = [
        Self::Processes,
        Self::Kernels,
        Self::Functions,
        Self::Queues,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Processes => "1 Processes",
            Self::Kernels => "2 Kernels",
            Self::Functions => "3 Functions",
            Self::Queues => "4 Queues",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Processes => Self::Kernels,
            Self::Kernels => Self::Functions,
            Self::Functions => Self::Queues,
            Self::Queues => Self::Processes,
        }
    }
}

/// What the user pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Up,
    Down,
    Tab,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    Redraw,
    End,
    Task(Task),
}

/// What the user sees, and has chosen.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    snapshot: Option<Snapshot>,
    tab: Tab,
    /// The chosen row of the table as shown.
    row: usize,
    /// The column by which rows are sorted; `None`: as the snapshot has them.
    sorted: Option<usize>,
    /// Whether the table of processes shows groups of them.
    group_by: Option<GroupBy>,
    /// Only rows of these processes.
    only: Option<Only>,
    /// Only rows with this text.
    filter: String,
    /// Whether the filter is being typed.
    is_typing: bool,
    is_frozen: bool,
    shows_help: bool,
    /// What the user is told until the next key.
    message: Option<String>,
    /// The processes that are being recorded.
    recorded: Vec<u32>,
}

/// A choice of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Only {
    Process(u32),
    /// The group with this name; `None`: those that belong to none.
    Group(GroupBy, Option<String>),
}

/// A row of a table: whose it is, and its cells.
struct Shown {
    of: Only,
    cells: Vec<Cell>,
}

impl Screen {
    /// A screen that begins with processes, or with groups of them.
    pub(crate) fn new(group_by: Option<GroupBy>) -> Self {
        Self {
            group_by,
            ..Self::default()
        }
    }

    /// Takes a new snapshot, unless the screen is frozen. Returns whether it did.
    pub(crate) fn take(&mut self, snapshot: Snapshot) -> bool {
        if self.is_frozen && self.snapshot.is_some() {
            return false;
        }
        self.snapshot = Some(snapshot);
        true
    }

    /// Does what a key asks for.
    pub(crate) fn key(&mut self, key: Key) -> Asked {
        if key == Key::Interrupt {
            return Asked::End;
        }
        self.message = None;
        if self.is_typing {
            self.type_filter(key);
            return Asked::Redraw;
        }
        if self.shows_help {
            self.shows_help = false;
            return if key == Key::Char('q') {
                Asked::End
            } else {
                Asked::Redraw
            };
        }
        match key {
            Key::Char('q') => return Asked::End,
            Key::Char('?' | 'h') => self.shows_help = true,
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => self.sort(1),
            Key::Char('S') => self.sort(-1),
            Key::Char('g') => self.regroup(),
            Key::Char('d') => return Asked::Task(Task::DumpFlight),
            Key::Char('r') => {
                return match self.chosen_row() {
                    Some(Only::Process(pid)) => Asked::Task(Task::Record(pid)),
                    _ => {
                        self.message = Some("choose a process, not a group".to_owned());
                        Asked::Redraw
                    }
                };
            }
            Key::Char(digit @ '1'..='4') => {
                let number = digit as usize - '1' as usize;
                self.show(Tab::ALL.get(number).copied().unwrap_or_default());
            }
            Key::Tab => self.show(self.tab.next()),
            Key::Up => self.row = self.row.saturating_sub(1),
            Key::Down => self.row = self.row.saturating_add(1).min(self.last_row()),
            Key::Enter => self.choose(),
            Key::Escape => {
                if let Some(Only::Group(by, _)) = self.only.take() {
                    self.group_by = Some(by);
                    self.show(Tab::Processes);
                }
                self.filter.clear();
            }
            _ => return Asked::Nothing,
        }
        Asked::Redraw
    }

    /// Whose the chosen row is; `None` if there is no row.
    fn chosen_row(&self) -> Option<Only> {
        self.rows().into_iter().nth(self.row).map(|row| row.of)
    }

    /// Takes a message, and which processes are being recorded.
    pub(crate) fn tell(&mut self, message: Option<String>, recorded: Vec<u32>) {
        self.message = message;
        self.recorded = recorded;
    }

    /// Shows only the process or the group of the chosen row, one table further.
    fn choose(&mut self) {
        let Some(chosen) = self.chosen_row() else {
            return;
        };
        if let Only::Group(..) = chosen {
            self.group_by = None;
            self.show(Tab::Processes);
        } else if self.tab == Tab::Processes {
            self.show(Tab::Kernels);
        }
        self.only = Some(chosen);
    }

    /// Shows the next kind of groups of which there are any, or processes.
    fn regroup(&mut self) {
        let after = match self.group_by {
            Some(by) => GroupBy::ALL
                .iter()
                .position(|one| *one == by)
                .map_or(0, |at| at + 1),
            None => 0,
        };
        let is_known = |by: &&GroupBy| {
            let groups = self.snapshot.as_ref().and_then(|all| all.groups.get(by));
            groups.is_some_and(|groups| groups.iter().any(|group| group.name.is_some()))
        };
        self.group_by = GroupBy::ALL.iter().skip(after).find(is_known).copied();
        self.only = None;
        self.show(Tab::Processes);
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(char) => self.filter.push(char),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.row = 0;
    }

    fn show(&mut self, tab: Tab) {
        (self.tab, self.row, self.sorted) = (tab, 0, None);
    }

    fn sort(&mut self, by: isize) {
        let columns = self.heading().len();
        let step = by.rem_euclid(columns as isize) as usize;
        let present = self.sorted.unwrap_or(if by > 0 { columns - 1 } else { 0 });
        self.sorted = Some((present + step) % columns);
        self.row = 0;
    }

    fn last_row(&self) -> usize {
        self.rows().len().saturating_sub(1)
    }

    /// The rows of the table, filtered and sorted.
    fn rows(&self) -> Vec<Shown> {
        let Some(snapshot) = &self.snapshot else {
            return Vec::new();
        };
        let seconds = page::seconds(snapshot);
        let mut rows: Vec<Shown> = match (self.tab, self.group_by) {
            (Tab::Processes, Some(by)) => {
                let groups = snapshot.groups.get(&by).into_iter().flatten();
                let row = |row: &GroupRow| Shown {
                    of: Only::Group(by, row.name.clone()),
                    cells: group(row, seconds),
                };
                groups.map(row).collect()
            }
            (Tab::Processes, None) => {
                self.chosen(&snapshot.processes, |row| (row.pid, process(row, seconds)))
            }
            (Tab::Kernels, _) => {
                self.chosen(&snapshot.kernels, |row| (row.pid, kernel(row, seconds)))
            }
            (Tab::Functions, _) => {
                self.chosen(&snapshot.functions, |row| (row.pid, function(row, seconds)))
            }
            (Tab::Queues, _) => self.chosen(&snapshot.queues, |row| (row.pid, queue(row, seconds))),
        };
        if !self.filter.is_empty() {
            rows.retain(|row| {
                row.cells
                    .iter()
                    .any(|cell| cell.text.contains(&self.filter))
            });
        }
        if let Some(column) = self.sorted {
            // Stable: equal rows stay in the snapshot's order. Names go up, numbers down.
            rows.sort_by(|one, other| {
                let [one, other] = [one, other].map(|row| row.cells.get(column));
                match (one, other) {
                    (Some(one), Some(other)) => match (one.number, other.number) {
                        (Some(one), Some(other)) => other.total_cmp(&one),
                        _ => one.text.cmp(&other.text),
                    },
                    _ => Ordering::Equal,
                }
            });
        }
        rows
    }

    /// The rows of the chosen processes.
    fn chosen<T>(&self, rows: &[T], cells: impl Fn(&T) -> (u32, Vec<Cell>)) -> Vec<Shown> {
        let group = match &self.only {
            Some(Only::Group(by, name)) => {
                let groups = self.snapshot.as_ref().and_then(|all| all.groups.get(by));
                let mut groups = groups.into_iter().flatten();
                groups.find(|group| group.name == *name)
            }
            _ => None,
        };
        let is_chosen = |pid: u32| match &self.only {
            None => true,
            Some(Only::Process(only)) => *only == pid,
            Some(Only::Group(..)) => group.is_some_and(|group| group.pids.contains(&pid)),
        };
        let rows = rows.iter().map(cells).filter(|(pid, _)| is_chosen(*pid));
        rows.map(|(pid, cells)| Shown {
            of: Only::Process(pid),
            cells,
        })
        .collect()
    }

    /// The heading of the table in the middle.
    fn heading(&self) -> Cow<'static, Heading> {
        Cow::Borrowed(match (self.tab, self.group_by) {
            (Tab::Processes, Some(by)) => return Cow::Owned(groups(by)),
            (Tab::Processes, None) => &PROCESSES,
            (Tab::Kernels, _) => &KERNELS,
            (Tab::Functions, _) => &FUNCTIONS,
            (Tab::Queues, _) => &QUEUES,
        })
    }

    /// Draws everything.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let Some(snapshot) = &self.snapshot else {
            frame.render_widget(
                Paragraph::new("gputrace top: the first interval is not over"),
                area,
            );
            return;
        };
        let gpus = u16::try_from(snapshot.gpus.len()).unwrap_or(u16::MAX);
        let gpu_lines = gpus.saturating_add(1).min(GPU_LINES).min(area.height / 3);
        let [title, gpu_area, tabs, table, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(gpu_lines),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        let frozen = if self.is_frozen { "  FROZEN" } else { "" };
        let recorded = match &self.recorded[..] {
            [] => String::new(),
            pids => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                format!("  RECORDING {}", pids.join(", "))
            }
        };
        let text = format!("gputrace top{frozen}{recorded}  {}", page::title(snapshot));
        frame.render_widget(Paragraph::new(text), title);
        let seconds = page::seconds(snapshot);
        let gpus = snapshot.gpus.iter();
        let rows: Vec<Vec<String>> = gpus.map(|row| texts(gpu(row, seconds))).collect();
        draw_table(frame, gpu_area, &GPUS, &rows, None, None);
        frame.render_widget(Paragraph::new(self.tabs()), tabs);
        let rows: Vec<Vec<String>> = self
            .rows()
            .into_iter()
            .map(|row| texts(row.cells))
            .collect();
        let chosen = self.row.min(rows.len().saturating_sub(1));
        draw_table(
            frame,
            table,
            &self.heading(),
            &rows,
            Some(chosen),
            self.sorted,
        );
        frame.render_widget(Paragraph::new(self.keys()), keys);
        if self.shows_help {
            draw_help(frame, area);
        }
    }

    fn tabs(&self) -> Text<'static> {
        let mut text = Vec::new();
        for tab in Tab::ALL {
            let style = if tab == self.tab {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Style::new()
            };
            text.push(ratatui::text::Span::styled(
                format!(" {} ", tab.name()),
                style,
            ));
        }
        match &self.only {
            Some(Only::Process(pid)) => text.push(format!("  process {pid}").into()),
            Some(Only::Group(by, name)) => {
                let name = name.as_deref().unwrap_or(NOTHING);
                let by = by.heading().to_lowercase();
                text.push(format!("  {by} {}", Line::new(name)).into());
            }
            None => {}
        }
        if self.is_typing || !self.filter.is_empty() {
            let cursor = if self.is_typing { "_" } else { "" };
            text.push(format!("  /{}{cursor}", Line::new(&self.filter)).into());
        }
        Text::from(text)
    }

    fn keys(&self) -> String {
        if let Some(message) = &self.message {
            Line::new(message).to_string()
        } else if self.is_typing {
            "type a text; Enter: done, Escape: no filter".to_owned()
        } else {
            "q end  ? help  Tab table  g group  Enter choose  Esc all  s sort  r record".to_owned()
        }
    }
}

/// Draws a table; `chosen` is the row to mark, `sorted` the column by which it is sorted.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    heading: &Heading,
    rows: &[Vec<String>],
    chosen: Option<usize>,
    sorted: Option<usize>,
) {
    let escaped: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| Line::from(cell).to_string())
                .collect()
        })
        .collect();
    let widths = widths(heading, &escaped, area.width);
    let cell = |column: usize, text: String| {
        let width = widths.get(column).copied().unwrap_or_default().into();
        let text = gputrace_text::tables::clipped(&text, width).into_owned();
        let line = Text::from(text);
        widgets::Cell::from(match heading.get(column) {
            Some((_, Align::Right)) => line.right_aligned(),
            _ => line,
        })
    };
    let head = heading.iter().take(widths.len()).enumerate();
    let head = head.map(|(column, (name, _))| {
        let style = if sorted == Some(column) {
            Modifier::BOLD | Modifier::UNDERLINED
        } else {
            Modifier::BOLD
        };
        cell(column, (*name).to_owned()).style(Style::new().add_modifier(style))
    });
    let head = Row::new(head.collect::<Vec<_>>());
    let body = escaped.into_iter().map(|row| {
        let cells = row.into_iter().take(widths.len()).enumerate();
        Row::new(
            cells
                .map(|(column, text)| cell(column, text))
                .collect::<Vec<_>>(),
        )
    });
    let body: Vec<Row<'_>> = body.collect();
    let table = Table::new(body, widths.iter().map(|width| Constraint::Length(*width)))
        .header(head)
        .column_spacing(BETWEEN)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(chosen.filter(|_| !rows.is_empty()));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Widths of the columns that fit into `width`: each as wide as its widest cell. The column of names
/// is made narrower first, then columns are left out from the right.
fn widths(heading: &Heading, rows: &[Vec<String>], width: u16) -> Vec<u16> {
    let widest = |column: usize, name: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        u16::try_from(widest.max(name.chars().count())).unwrap_or(u16::MAX)
    };
    let columns = heading.iter().enumerate();
    let mut widths: Vec<u16> = columns
        .map(|(column, (name, _))| widest(column, name))
        .collect();
    let names = heading.iter().position(|(_, align)| *align == Align::Left);
    loop {
        let spaces = u16::try_from(widths.len().saturating_sub(1)).unwrap_or(u16::MAX);
        let all = widths
            .iter()
            .fold(spaces.saturating_mul(BETWEEN), |sum, width| {
                sum.saturating_add(*width)
            });
        let excess = all.saturating_sub(width);
        if excess == 0 || widths.len() <= 2 {
            return widths;
        }
        if let Some(name) = names.and_then(|column| widths.get_mut(column)) {
            let least = SHORTEST_NAME.min(*name);
            let shorter = name.saturating_sub(excess).max(least);
            if *name - shorter == excess {
                *name = shorter;
                return widths;
            }
        }
        widths.pop();
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = u16::try_from(HELP.len()).unwrap_or(u16::MAX);
    let widest = HELP.iter().map(|line| line.chars().count()).max();
    let width = u16::try_from(widest.unwrap_or_default()).unwrap_or(u16::MAX);
    let place = area.centered(
        Constraint::Length(width.saturating_add(4)),
        Constraint::Length(lines.saturating_add(2)),
    );
    frame.render_widget(Clear, place);
    let block = widgets::Block::bordered().title("Keys");
    let text: Vec<Text<'_>> = HELP.iter().map(|line| Text::from(*line)).collect();
    frame.render_widget(Paragraph::new(text).block(block), place);
}
