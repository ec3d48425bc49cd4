//! The parser: what it knows while it reads a name, and how it reads characters.

use super::MAX_DEPTH;
use super::node::{Id, List, Node, Scope, Tree};

/// What the parser learns about a function from its name.
#[derive(Default)]
pub(super) struct About {
    /// Whether the name is a function's, or may be: its template arguments are what `T_` stands
    /// for.
    pub(super) is_function: bool,
    /// Whether it is a constructor, destructor or conversion: such functions have no result in
    /// their names.
    pub(super) without_result: bool,
    /// Whether it ends with template arguments.
    pub(super) is_instance: bool,
    pub(super) qualifiers: super::node::Qualifiers,
    pub(super) explicit_object: bool,
}

/// A part that the name may refer to again.
#[derive(Clone, Copy)]
struct Substitution {
    id: Id,
    /// The function in whose name it is.
    scope: Scope,
}

/// How scopes are told from names in expressions that depend on template parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scopes {
    /// By an `E`, as the ABI says.
    Ended,
    /// Not at all: the scope is a type, as GCC writes it.
    Joined,
}

pub(super) struct Parser<'a> {
    input: &'a str,
    at: usize,
    pub(super) tree: Tree<'a>,
    /// What `S_` and the like stand for.
    substitutions: Vec<Substitution>,
    /// The function whose name is being read.
    pub(super) scope: Scope,
    /// Whether there are template parameters in what was read.
    pub(super) has_parameters: bool,
    /// What `T_` and the like stand for, by level.
    pub(super) parameters: Vec<Vec<Id>>,
    /// Template parameters that were read before what they stand for.
    pub(super) ahead: Vec<(Id, usize)>,
    /// Whether template parameters may be [ahead](Self::ahead).
    pub(super) may_be_ahead: bool,
    /// Whether `I` after a template parameter belongs to it.
    pub(super) with_arguments: bool,
    /// Whether the declaration of a template argument's parameter is being read.
    pub(super) in_declaration: bool,
    /// Whether the signature of a lambda is being read.
    pub(super) in_closure: bool,
    /// How many names were invented for types, values and templates.
    pub(super) invented: [u64; 3],
    pub(super) scopes: Scopes,
    /// Whether such a scope was met that seems to be [joined](Scopes::Joined).
    pub(super) has_joined_scope: bool,
    depth: u32,
}

impl<'a> Parser<'a> {
    pub(super) fn new(input: &'a str, scopes: Scopes) -> Self {
        Self {
            input,
            at: 0,
            tree: Tree::default(),
            substitutions: Vec::new(),
            scope: 0,
            has_parameters: false,
            parameters: Vec::new(),
            ahead: Vec::new(),
            may_be_ahead: false,
            with_arguments: true,
            in_declaration: false,
            in_closure: false,
            invented: [0; 3],
            scopes,
            has_joined_scope: false,
            depth: 0,
        }
    }

    /// The whole name: an encoding and, for clones that optimisation makes, their suffixes.
    pub(super) fn whole(&mut self) -> Option<Top<'a>> {
        let of = self.encoding()?;
        let suffixes = self.input.get(self.at..)?;
        (suffixes.is_empty() || suffixes.starts_with('.')).then_some(Top { of, suffixes })
    }

    /// Reads a part within another one.
    pub(super) fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    pub(super) fn add(&mut self, node: Node<'a>) -> Option<Id> {
        self.tree.add(node)
    }

    /// Adds a part that the name may refer to again.
    pub(super) fn add_substitution(&mut self, node: Node<'a>) -> Option<Id> {
        let id = self.tree.add(node)?;
        self.remember(id);
        Some(id)
    }

    /// The name may refer to this part again.
    pub(super) fn remember(&mut self, id: Id) {
        let scope = self.scope;
        self.substitutions.push(Substitution { id, scope });
    }

    /// The name does not refer to the latest part again, after all.
    pub(super) fn forget(&mut self) {
        self.substitutions.pop();
    }

    /// The part that the name refers to, by its number.
    pub(super) fn remembered(&mut self, number: usize) -> Option<Id> {
        let Substitution { id, scope } = *self.substitutions.get(number)?;
        if scope != self.scope && self.has_parameters {
            self.add(Node::Elsewhere(id, self.scope))
        } else {
            Some(id)
        }
    }

    /// The character `ahead` places from here; 0 behind the end.
    pub(super) fn look(&self, ahead: usize) -> u8 {
        let bytes = self.input.as_bytes();
        bytes.get(self.at + ahead).copied().unwrap_or_default()
    }

    pub(super) fn is_next(&self, text: &str) -> bool {
        self.input
            .as_bytes()
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(text.as_bytes()))
    }

    /// Takes `text` if it comes next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let is_next = self.is_next(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    pub(super) fn expect(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    /// Whether nothing follows that would belong to this encoding.
    pub(super) fn is_encoding_over(&self) -> bool {
        self.at >= self.input.len() || matches!(self.look(0), b'E' | b'.' | b'_')
    }

    /// The next `len` bytes.
    pub(super) fn text(&mut self, len: usize) -> Option<&'a str> {
        let end = self.at.checked_add(len)?;
        let text = self.input.get(self.at..end)?;
        self.at = end;
        Some(text)
    }

    /// As many characters as `belongs` takes; may be none.
    pub(super) fn text_while(&mut self, belongs: impl Fn(u8) -> bool) -> Option<&'a str> {
        let rest = self.input.as_bytes().get(self.at..)?;
        let len = rest
            .iter()
            .position(|byte| !belongs(*byte))
            .unwrap_or(rest.len());
        self.text(len)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.text_while(|byte| byte.is_ascii_digit())?.parse().ok()
    }

    /// A number that may be negative (`n1`), as text.
    pub(super) fn signed(&mut self) -> Option<&'a str> {
        let begin = self.at;
        self.take("n");
        let digits = self.text_while(|byte| byte.is_ascii_digit())?;
        if digits.is_empty() {
            return None;
        }
        self.input.get(begin..self.at)
    }

    /// `_` for 0, `0_` for 1, `1_` for 2 and so on.
    pub(super) fn ordinal(&mut self) -> Option<u64> {
        if self.take("_") {
            return Some(0);
        }
        let number = self.number()?;
        self.expect("_")?;
        number.checked_add(1)
    }

    /// Parts up to `end`, which is taken.
    pub(super) fn many(
        &mut self,
        end: &str,
        mut read: impl FnMut(&mut Self) -> Option<Id>,
    ) -> Option<List> {
        let mut parts = Vec::new();
        while !self.take(end) {
            parts.push(read(self)?);
        }
        self.tree.list(&parts)
    }
}

/// A name that was read as a whole.
#[derive(Clone, Copy)]
pub(super) struct Top<'a> {
    pub(super) of: Id,
    /// E.g. `.kd` or `.isra.0`.
    pub(super) suffixes: &'a str,
}
