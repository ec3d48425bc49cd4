//! What the compiler makes for functions and data: tables of virtual functions, thunks, guards.

use super::node::{Id, Node};
use super::parse::{About, Parser};

impl Parser<'_> {
    pub(super) fn special(&mut self) -> Option<Id> {
        for (code, text) in [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
        ] {
            if self.take(code) {
                let of = self.type_()?;
                return self.add(Node::Special(text, of));
            }
        }
        for (code, text) in [
            ("GV", "guard variable for "),
            ("TW", "TLS wrapper function for "),
            ("TH", "TLS init function for "),
        ] {
            if self.take(code) {
                let of = self.name(&mut About::default())?;
                return self.add(Node::Special(text, of));
            }
        }
        for (code, text) in [
            ("GA", "hidden alias for "),
            ("GTt", "transaction clone for "),
            ("GTn", "non-transaction clone for "),
        ] {
            if self.take(code) {
                let of = self.encoding()?;
                return self.add(Node::Special(text, of));
            }
        }
        if self.take("TA") {
            let of = self.template_argument()?;
            return self.add(Node::Special("template parameter object for ", of));
        }
        if self.take("TC") {
            let within = self.type_()?;
            self.number()?;
            self.expect("_")?;
            let of = self.type_()?;
            return self.add(Node::Construction(of, within));
        }
        if self.take("GR") {
            let of = self.name(&mut About::default())?;
            // Its number is in base 36, like that of substitutions.
            let number = self.sequence()?;
            return self.add(Node::Temporary(number, of));
        }
        self.thunk()
    }

    fn thunk(&mut self) -> Option<Id> {
        self.expect("T")?;
        let text = match self.look(0) {
            b'h' => "non-virtual thunk to ",
            b'v' => "virtual thunk to ",
            b'c' => {
                self.text(1)?;
                self.offset()?;
                self.offset()?;
                let of = self.encoding()?;
                return self.add(Node::Special("covariant return thunk to ", of));
            }
            _ => return None,
        };
        self.offset()?;
        let of = self.encoding()?;
        self.add(Node::Special(text, of))
    }

    /// How far a thunk moves the object.
    fn offset(&mut self) -> Option<()> {
        if self.take("h") {
            self.signed()?;
        } else {
            self.expect("v")?;
            self.signed()?;
            self.expect("_")?;
            self.signed()?;
        }
        self.expect("_")
    }
}
