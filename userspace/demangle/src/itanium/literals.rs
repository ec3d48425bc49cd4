//! Constants in template arguments and expressions.

use super::node::{Id, Node};
use super::parse::Parser;

impl Parser<'_> {
    pub(super) fn literal(&mut self) -> Option<Id> {
        self.expect("L")?;
        // GCC leaves the underscore out.
        if self.take("_Z") || self.take("Z") {
            let of = self.encoding()?;
            self.expect("E")?;
            return Some(of);
        }
        let of = self.type_()?;
        if matches!(self.tree.get(of)?, Node::Array(..)) {
            self.expect("E")?;
            return self.add(Node::StringLiteral(of));
        }
        let value = self.text_while(|byte| {
            byte.is_ascii_digit() || byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.')
        })?;
        self.expect("E")?;
        self.add(Node::Literal(of, value))
    }
}
