//! Trees of calls with statistics. Memory grows with the number of distinct call paths, not with
//! the number of calls.

use std::collections::{BTreeMap, HashMap};

use gputrace_timeline::event::Call;

/// Number and times of calls, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of calls.
    pub count: u64,
    /// Sum of their times.
    pub sum: u64,
    /// Sum of the squares of their times.
    pub squares: u128,
    /// Shortest time.
    pub min: u64,
    /// Longest time.
    pub max: u64,
}

impl Stats {
    fn add(&mut self, time: u64) {
        self.merge(&Self {
            count: 1,
            sum: time,
            squares: u128::from(time) * u128::from(time),
            min: time,
            max: time,
        });
    }

    /// Saturates, because times may come from an untrusted file.
    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Mean time, ns; 0 without calls.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum as f64 / self.count as f64
    }

    /// Sample variance of the times, ns² (divided by one less than their number); 0 for a single
    /// one.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // Exact up to the division: count · Σt² - (Σt)², which is not negative unless something
        // saturated.
        let sum = u128::from(self.sum);
        let spread = match (
            self.squares.checked_mul(u128::from(self.count)),
            sum.checked_mul(sum),
        ) {
            (Some(squares), Some(square)) => squares.saturating_sub(square) as f64,
            _ => (self.squares as f64 * self.count as f64 - (self.sum as f64).powi(2)).max(0.0),
        };
        spread / (self.count as f64 * (self.count - 1) as f64)
    }

    /// Standard deviation of the times, ns.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }
}

/// A function with its path of callers.
#[derive(Clone, Debug, Default)]
struct Node {
    stats: Stats,
    /// When it was first called there, ns: rows are shown in this order.
    first: u64,
    /// The node above; `None` for the root, and for a node that has no place yet.
    parent: Option<usize>,
    /// Children by function.
    children: BTreeMap<u32, usize>,
}

/// A tree of calls; its root stands for no call.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Unused nodes.
    free: Vec<usize>,
}

const ROOT: usize = 0;

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: Vec::new(),
        }
    }
}

impl Tree {
    /// Creates a node that has no place yet.
    fn create(&mut self, first: u64) -> usize {
        let node = Node {
            first,
            ..Node::default()
        };
        if let Some(index) = self.free.pop()
            && let Some(place) = self.nodes.get_mut(index)
        {
            *place = node;
            return index;
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The node of `function` below `parent`, created if necessary.
    fn child(&mut self, parent: usize, function: u32, first: u64) -> usize {
        let known = self
            .nodes
            .get(parent)
            .and_then(|node| node.children.get(&function));
        if let Some(index) = known.copied() {
            if let Some(node) = self.nodes.get_mut(index) {
                node.first = node.first.min(first);
            }
            return index;
        }
        let index = self.create(first);
        if let Some(node) = self.nodes.get_mut(index) {
            node.parent = Some(parent);
        }
        if let Some(node) = self.nodes.get_mut(parent) {
            node.children.insert(function, index);
        }
        index
    }

    fn add(&mut self, node: usize, time: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.stats.add(time);
        }
    }

    /// Number of calls directly below a node.
    fn calls_below(&self, node: usize) -> u64 {
        let children = self.nodes.get(node).map(|node| node.children.values());
        let stats = children
            .into_iter()
            .flatten()
            .filter_map(|child| self.nodes.get(*child));
        stats.map(|child| child.stats.count).sum()
    }

    /// Whether `node` is `other` or is below it.
    fn is_below(&self, node: usize, other: usize) -> bool {
        let up = |node: &usize| self.nodes.get(*node).and_then(|node| node.parent);
        std::iter::successors(Some(node), up).any(|node| node == other)
    }

    /// Moves everything below `from` to below `to`, which must not be below `from`.
    fn transplant(&mut self, from: usize, to: usize) {
        let mut moves = vec![(from, to)];
        while let Some((from, to)) = moves.pop() {
            let Some(node) = self.nodes.get_mut(from) else {
                continue;
            };
            let children = std::mem::take(&mut node.children);
            for (function, child) in children {
                let Some((stats, first)) =
                    self.nodes.get(child).map(|node| (node.stats, node.first))
                else {
                    continue;
                };
                let target = self.child(to, function, first);
                if let Some(node) = self.nodes.get_mut(target) {
                    node.stats.merge(&stats);
                }
                moves.push((child, target));
            }
            if from != ROOT {
                self.free.push(from);
            }
        }
    }

    /// Adds another tree's calls.
    pub fn merge(&mut self, other: &Self) {
        let mut pairs = vec![(ROOT, ROOT)];
        while let Some((from, to)) = pairs.pop() {
            let children = other.nodes.get(from).map(|node| &node.children);
            for (function, child) in children.into_iter().flatten() {
                let Some(node) = other.nodes.get(*child) else {
                    continue;
                };
                let target = self.child(to, *function, node.first);
                if let Some(mine) = self.nodes.get_mut(target) {
                    mine.stats.merge(&node.stats);
                }
                pairs.push((*child, target));
            }
        }
    }

    /// All nodes as (function, depth, statistics, time not spent below it in ns). Callers come
    /// before callees, and siblings are in order of their first calls.
    pub fn rows(&self) -> impl Iterator<Item = (u32, usize, Stats, u64)> {
        let mut rows = Vec::new();
        let mut next = self.below(ROOT, 0);
        while let Some((function, index, depth)) = next.pop() {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            let below = node
                .children
                .values()
                .filter_map(|child| self.nodes.get(*child))
                .fold(0_u64, |sum, child| sum.saturating_add(child.stats.sum));
            rows.push((
                function,
                depth,
                node.stats,
                node.stats.sum.saturating_sub(below),
            ));
            next.extend(self.below(index, depth + 1));
        }
        rows.into_iter()
    }

    /// The children of a node, last one first.
    fn below(&self, index: usize, depth: usize) -> Vec<(u32, usize, usize)> {
        let children = self.nodes.get(index).map(|node| &node.children);
        let mut list: Vec<(u64, u32, usize)> = children
            .into_iter()
            .flatten()
            .map(|(function, child)| {
                (
                    self.nodes.get(*child).map_or(0, |node| node.first),
                    *function,
                    *child,
                )
            })
            .collect();
        list.sort_unstable_by(|a, b| b.cmp(a));
        list.into_iter()
            .map(|(_, function, child)| (function, child, depth))
            .collect()
    }
}

/// A call that encloses the calls that come next.
#[derive(Clone, Copy, Debug)]
struct Open {
    correlation: u64,
    begin: u64,
    end: u64,
    node: usize,
}

/// Builds a tree from the calls of one thread.
///
/// Calls come in the order that [`gputrace_timeline::event`] promises: an earlier call comes before
/// a later one that it does not enclose, but an enclosing call may come after the calls inside it,
/// and a range always does. Calls whose caller or range has not come yet wait below a node of their
/// own.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    tree: Tree,
    /// The last call and the calls that enclose it, outermost first.
    open: Vec<Open>,
    /// Nodes of calls whose caller has not come yet, by the caller's correlation id.
    waiting: HashMap<u64, usize>,
    strays: u64,
}

impl Thread {
    /// When the first call began, ns.
    #[must_use]
    pub fn first(&self) -> u64 {
        let nodes = self.tree.nodes.iter().skip(1);
        nodes
            .filter(|node| node.stats.count != 0)
            .map(|node| node.first)
            .min()
            .unwrap_or(0)
    }

    /// Takes the next call of the thread.
    pub fn take(&mut self, call: &Call) {
        let parent = self.parent(call);
        let node = self.tree.child(parent, call.function, call.begin);
        self.tree.add(node, call.end.saturating_sub(call.begin));
        // Only a damaged capture has calls inside themselves.
        let inner = self.waiting.get(&call.correlation).copied();
        if let Some(inner) = inner.filter(|inner| !self.tree.is_below(node, *inner)) {
            self.waiting.remove(&call.correlation);
            self.tree.transplant(inner, node);
        }
        self.open.push(Open {
            correlation: call.correlation,
            begin: call.begin,
            end: call.end,
            node,
        });
    }

    /// The node below which a call belongs.
    fn parent(&mut self, call: &Call) -> usize {
        let around = call.around();
        if around == 0 {
            self.open.clear();
            return ROOT;
        }
        let known = self
            .open
            .iter()
            .rposition(|open| open.correlation == around);
        if let Some(index) = known {
            self.open.truncate(index + 1);
            return self.open.last().map_or(ROOT, |open| open.node);
        }
        while let Some(last) = self.open.last() {
            if last.begin <= call.begin && call.end <= last.end {
                if call.range != 0 {
                    // Ranges come when they have ended.
                    break;
                }
                // Anything between the two would have come by now.
                self.strays += 1;
                return last.node;
            }
            self.open.pop();
        }
        match self.waiting.get(&around) {
            Some(node) => *node,
            None => {
                let node = self.tree.create(call.begin);
                self.waiting.insert(around, node);
                node
            }
        }
    }

    /// The tree, and the number of calls whose caller is not in it.
    #[must_use]
    pub fn finish(mut self) -> (Tree, u64) {
        for node in std::mem::take(&mut self.waiting).into_values() {
            self.strays += self.tree.calls_below(node);
            self.tree.transplant(node, ROOT);
        }
        (self.tree, self.strays)
    }
}
