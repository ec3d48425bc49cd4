//! Names in expressions that depend on template parameters, so that nobody knows yet what they are.

use super::node::{Id, Node};
use super::parse::{About, Parser, Scopes};

impl Parser<'_> {
    pub(super) fn unresolved_name(&mut self, is_global: bool) -> Option<Id> {
        if !self.take("sr") {
            let name = self.base_name()?;
            return self.with_global(name, is_global);
        }
        // Nested types that do not depend on a template parameter are written like any other type.
        let is_dependent = self.look(0) == b'N' && matches!(self.look(1), b'T' | b'D');
        if is_dependent && self.scopes == Scopes::Ended {
            self.expect("N")?;
            let mut scope = self.scope_type()?;
            while !self.take("E") {
                let name = self.simple_name()?;
                scope = self.add(Node::Nested(scope, name))?;
            }
            let name = self.base_name()?;
            return self.add(Node::Nested(scope, name));
        }
        if !self.look(0).is_ascii_digit() || self.scopes == Scopes::Joined {
            let scope = self.scope_type()?;
            let name = self.base_name()?;
            return self.add(Node::Nested(scope, name));
        }
        let first = self.simple_name()?;
        let mut scope = self.with_global(first, is_global)?;
        let mut levels = 1;
        loop {
            if self.is_next("E") && self.is_base_name(1) {
                self.expect("E")?;
                let name = self.base_name()?;
                return self.add(Node::Nested(scope, name));
            }
            // GCC writes a class and its member without an `E` between them.
            if levels == 2 && !self.look(0).is_ascii_digit() {
                self.has_joined_scope = true;
                return Some(scope);
            }
            let name = self.simple_name()?;
            scope = self.add(Node::Nested(scope, name))?;
            levels += 1;
        }
    }

    fn with_global(&mut self, name: Id, is_global: bool) -> Option<Id> {
        if is_global {
            self.add(Node::Global(name))
        } else {
            Some(name)
        }
    }

    /// The type that an unresolved name begins with.
    fn scope_type(&mut self) -> Option<Id> {
        let scope = match (self.look(0), self.look(1)) {
            (b'T', _) => {
                let parameter = self.template_parameter()?;
                self.remember(parameter);
                parameter
            }
            (b'D', _) => {
                let of = self.decltype()?;
                self.remember(of);
                of
            }
            (b'S', b't') => return self.type_(),
            (b'S', _) => self.substitution()?,
            _ => return self.type_(),
        };
        if self.look(0) != b'I' {
            return Some(scope);
        }
        let arguments = self.template_arguments(false)?;
        self.add(Node::Instance(scope, arguments))
    }

    /// Whether what is `ahead` places from here begins the last part of an unresolved name.
    fn is_base_name(&self, ahead: usize) -> bool {
        match (self.look(ahead), self.look(ahead + 1)) {
            (b'o' | b'd', b'n') => true,
            (first, _) => first.is_ascii_digit(),
        }
    }

    fn base_name(&mut self) -> Option<Id> {
        if self.look(0).is_ascii_digit() {
            return self.simple_name();
        }
        if self.take("dn") {
            let of = if self.look(0).is_ascii_digit() {
                self.simple_name()?
            } else {
                self.scope_type()?
            };
            return self.add(Node::Destructor(of));
        }
        self.take("on");
        let name = self.operator_name(&mut About::default())?;
        self.perhaps_instance(name)
    }

    pub(super) fn simple_name(&mut self) -> Option<Id> {
        let name = self.source_name()?;
        let name = self.tags(name)?;
        self.perhaps_instance(name)
    }

    fn perhaps_instance(&mut self, name: Id) -> Option<Id> {
        if self.look(0) != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        self.add(Node::Instance(name, arguments))
    }
}
