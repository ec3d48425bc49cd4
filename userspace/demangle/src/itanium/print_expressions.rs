//! How expressions are printed.

use super::node::{Id, Node, Qualifiers};
use super::operators::Operator;
use super::print::{Printed, Printer};

impl<'a> Printer<'_, 'a> {
    pub(super) fn expression(&mut self, node: Node<'a>) -> Printed {
        match node {
            Node::Literal(of, value) => self.literal(of, value),
            Node::StringLiteral(of) => {
                self.text("\"<")?;
                self.node(of)?;
                self.text(">\"")
            }
            Node::Prefix(operator, of) => self.prefix(operator, of),
            Node::Postfix(operator, of) => {
                self.operand(of)?;
                self.text(operator.text)
            }
            Node::Binary(operator, left, right) => self.binary(operator, left, right),
            Node::Subscript(left, right) => {
                self.operand(left)?;
                self.text("[")?;
                self.node(right)?;
                self.text("]")
            }
            Node::Call(function, arguments) => {
                // Of the function called, the name is enough.
                match self.get(function)? {
                    Node::Function { name, .. } => self.operand(name)?,
                    _ => self.operand(function)?,
                }
                self.text("(")?;
                self.list(arguments)?;
                self.text(")")
            }
            Node::Conditional(condition, then, otherwise) => {
                self.operand(condition)?;
                self.text("?")?;
                self.operand(then)?;
                self.text(" : ")?;
                self.operand(otherwise)
            }
            Node::NamedCast(operator, to, of) => {
                self.text(operator.text)?;
                self.text("<")?;
                self.node(to)?;
                self.text(">(")?;
                self.node(of)?;
                self.text(")")
            }
            Node::Cast(to, of) => {
                self.text("(")?;
                self.node(to)?;
                self.text(")")?;
                self.operand(of)
            }
            Node::CastOfMany(to, of) => {
                self.text("(")?;
                self.node(to)?;
                self.text(")(")?;
                self.list(of)?;
                self.text(")")
            }
            Node::Braced(of, items) => {
                if let Some(of) = of {
                    self.node(of)?;
                }
                self.text("{")?;
                self.list(items)?;
                self.text("}")
            }
            Node::New {
                operator,
                placement,
                of,
                arguments,
            } => {
                self.text(operator.text)?;
                self.text(" ")?;
                if !placement.is_empty() {
                    self.text("(")?;
                    self.list(placement)?;
                    self.text(") ")?;
                }
                self.node(of)?;
                if let Some(arguments) = arguments {
                    self.text("(")?;
                    self.list(arguments)?;
                    self.text(")")?;
                }
                Ok(())
            }
            Node::Global(of) => {
                self.text("::")?;
                self.node(of)
            }
            Node::Bracketed(operator, of) => {
                self.text(operator.text)?;
                self.text("(")?;
                self.node(of)?;
                self.text(")")
            }
            Node::SizeOfPack(pack) => match self.pack_len(pack)? {
                Some(len) => self.text(&len.to_string()),
                None => {
                    self.text("sizeof...(")?;
                    self.node(pack)?;
                    self.text(")")
                }
            },
            Node::SizeOfArguments(arguments) => {
                self.text("sizeof...(")?;
                self.list(arguments)?;
                self.text(")")
            }
            Node::FunctionParameter(number) => {
                self.text("{parm#")?;
                self.number(number)?;
                self.text("}")
            }
            Node::This => self.text("this"),
            Node::Throw => self.text("throw"),
            Node::Fold(operator, is_left, pack, other) => self.fold(operator, is_left, pack, other),
            _ => self.rare(node),
        }
    }

    /// What names hardly ever have.
    fn rare(&mut self, node: Node<'a>) -> Printed {
        match node {
            Node::Designated(name, value, is_place) => {
                self.text(if is_place { "[" } else { "." })?;
                self.node(name)?;
                self.text(if is_place { "]" } else { "" })?;
                self.designated_value(value)
            }
            Node::DesignatedRange(first, last, value) => {
                self.text("[")?;
                self.node(first)?;
                self.text(" ... ")?;
                self.node(last)?;
                self.text("]")?;
                self.designated_value(value)
            }
            Node::Subobject(base, of, offset) => {
                self.node(base)?;
                self.text(".<")?;
                self.node(of)?;
                self.text(" at offset ")?;
                self.signed(if offset.is_empty() { "0" } else { offset })?;
                self.text(">")
            }
            Node::VendorCall(name, arguments) => {
                self.text(name)?;
                self.text("(")?;
                self.list(arguments)?;
                self.text(")")
            }
            Node::Requires(parameters, requirements) => {
                self.text("requires ")?;
                if !parameters.is_empty() {
                    self.text("(")?;
                    self.list(parameters)?;
                    self.text(") ")?;
                }
                self.text("{")?;
                let tree = self.tree;
                for requirement in tree.entries(requirements) {
                    self.text(" ")?;
                    self.node(*requirement)?;
                    self.text(";")?;
                }
                self.text(" }")
            }
            Node::RequiresExpression(of, is_noexcept, result) => {
                if is_noexcept || result.is_some() {
                    self.text("{")?;
                    self.node(of)?;
                    self.text("}")?;
                } else {
                    self.node(of)?;
                }
                if is_noexcept {
                    self.text(" noexcept")?;
                }
                if let Some(result) = result {
                    self.text(" -> ")?;
                    self.node(result)?;
                }
                Ok(())
            }
            Node::RequiresType(of) => {
                self.text("typename ")?;
                self.node(of)
            }
            Node::RequiresNested(of) => {
                self.text("requires ")?;
                self.node(of)
            }
            // All others are names or types.
            _ => Ok(()),
        }
    }

    fn designated_value(&mut self, value: Id) -> Printed {
        if !matches!(
            self.get(value)?,
            Node::Designated(..) | Node::DesignatedRange(..)
        ) {
            self.text("=")?;
        }
        self.node(value)
    }

    fn literal(&mut self, of: Id, value: &str) -> Printed {
        match self.get(of)? {
            Node::Builtin("bool", _) if matches!(value, "0" | "1") => {
                return self.text(if value == "0" { "false" } else { "true" });
            }
            Node::Builtin(_, Some(suffix)) => {
                self.signed(value)?;
                return self.text(suffix);
            }
            Node::Builtin("decltype(nullptr)", _) if value.is_empty() => {
                return self.text("(decltype(nullptr))0");
            }
            _ => {}
        }
        self.text("(")?;
        self.node(of)?;
        self.text(")")?;
        if matches!(self.get(of)?, Node::Builtin("float" | "double", _)) {
            self.text("[")?;
            self.text(value)?;
            return self.text("]");
        }
        self.signed(value)
    }

    fn signed(&mut self, value: &str) -> Printed {
        match value.strip_prefix('n') {
            Some(digits) => {
                self.text("-")?;
                self.text(digits)
            }
            None => self.text(value),
        }
    }

    fn prefix(&mut self, operator: &Operator, of: Id) -> Printed {
        self.text(operator.text)?;
        // Of a function whose address is taken, the name is enough if it has a scope.
        if operator.code == *b"ad"
            && let Node::Function {
                name, qualifiers, ..
            } = self.get(of)?
            && qualifiers == Qualifiers::default()
            && let Node::Nested(..) = self.get(name)?
        {
            return self.operand(name);
        }
        self.operand(of)
    }

    fn binary(&mut self, operator: &Operator, left: Id, right: Id) -> Printed {
        // The end of the template arguments would be seen in it.
        let is_greater = operator.text == ">";
        if is_greater {
            self.text("(")?;
        }
        self.operand(left)?;
        self.text(operator.text)?;
        self.operand(right)?;
        if is_greater {
            self.text(")")?;
        }
        Ok(())
    }

    fn fold(&mut self, operator: &Operator, is_left: bool, pack: Id, other: Option<Id>) -> Printed {
        self.text("(")?;
        match other {
            Some(other) => {
                self.operand(pack)?;
                self.text(operator.text)?;
                self.text("...")?;
                self.text(operator.text)?;
                self.operand(other)?;
            }
            None if is_left => {
                self.text("...")?;
                self.text(operator.text)?;
                self.operand(pack)?;
            }
            None => {
                self.operand(pack)?;
                self.text(operator.text)?;
                self.text("...")?;
            }
        }
        self.text(")")
    }

    /// A part of an expression, in brackets unless it is a name.
    fn operand(&mut self, id: Id) -> Printed {
        let is_simple = matches!(
            self.get(id)?,
            Node::Name(_) | Node::Nested(..) | Node::Braced(..) | Node::FunctionParameter(_)
        );
        if is_simple {
            return self.node(id);
        }
        self.text("(")?;
        self.node(id)?;
        self.text(")")
    }
}
