//! Expressions in template arguments, array sizes, `decltype` and `noexcept`.

use super::node::{Id, Node};
use super::operators::{self, Form, Operator};
use super::parse::Parser;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Option<Id> {
        self.within(Self::expression_here)
    }

    fn expression_here(&mut self) -> Option<Id> {
        let is_global = self.take("gs");
        match (self.look(0), self.look(1)) {
            (b'L', _) => return self.literal(),
            (b'T', _) => return self.template_parameter(),
            (b'f', b'p' | b'L') if self.look(1) == b'p' || self.look(2).is_ascii_digit() => {
                return self.function_parameter();
            }
            (b'f', b'l' | b'r' | b'L' | b'R') => return self.fold(),
            (b'0'..=b'9', _) | (b's', b'r') | (b'o' | b'd', b'n') => {
                return self.unresolved_name(is_global);
            }
            _ => {}
        }
        if let Some(operator) = operators::find([self.look(0), self.look(1)]) {
            self.text(2)?;
            return self.operation(operator, is_global);
        }
        if self.look(0) == b'u' {
            return self.vendor_call();
        }
        self.particular()
    }

    /// What is neither an operator nor a name.
    fn particular(&mut self) -> Option<Id> {
        match (self.look(0), self.look(1)) {
            (b'i', b'l') => {
                self.text(2)?;
                let items = self.many("E", Self::braced_item)?;
                self.add(Node::Braced(None, items))
            }
            (b't', b'l') => {
                self.text(2)?;
                let of = self.type_()?;
                let items = self.many("E", Self::braced_item)?;
                self.add(Node::Braced(Some(of), items))
            }
            (b't', b'r') => {
                self.text(2)?;
                self.add(Node::Throw)
            }
            (b'c', b'v') => self.cast(),
            (b'c', b'p') => {
                self.text(2)?;
                let function = self.simple_name()?;
                let arguments = self.many("E", Self::expression)?;
                self.add(Node::Call(function, arguments))
            }
            (b's', b'p') => {
                self.text(2)?;
                let of = self.expression()?;
                self.add(Node::Expansion(of))
            }
            (b's', b'Z') => {
                self.text(2)?;
                let pack = self.expression()?;
                self.add(Node::SizeOfPack(pack))
            }
            (b's', b'P') => {
                self.text(2)?;
                let arguments = self.many("E", Self::template_argument)?;
                self.add(Node::SizeOfArguments(arguments))
            }
            (b's', b'o') => self.subobject(),
            (b'm', b'c') => {
                self.text(2)?;
                let to = self.type_()?;
                let of = self.expression()?;
                if !self.is_next("E") {
                    self.signed()?;
                }
                self.expect("E")?;
                self.add(Node::Cast(to, of))
            }
            (b'd', b'i' | b'x' | b'X') => self.braced_item(),
            (b'r', b'q' | b'Q') => self.requires(),
            _ => None,
        }
    }

    fn operation(&mut self, operator: &'static Operator, is_global: bool) -> Option<Id> {
        match operator.form {
            Form::Prefix => {
                let of = self.expression()?;
                let id = self.add(Node::Prefix(operator, of))?;
                if is_global {
                    self.add(Node::Global(id))
                } else {
                    Some(id)
                }
            }
            Form::Step => {
                if self.take("_") {
                    let of = self.expression()?;
                    return self.add(Node::Prefix(operator, of));
                }
                let of = self.expression()?;
                self.add(Node::Postfix(operator, of))
            }
            Form::Binary => {
                let left = self.expression()?;
                let right = self.expression()?;
                self.add(Node::Binary(operator, left, right))
            }
            Form::Subscript => {
                let left = self.expression()?;
                let right = self.expression()?;
                self.add(Node::Subscript(left, right))
            }
            Form::Call => {
                let function = self.expression()?;
                let arguments = self.many("E", Self::expression)?;
                self.add(Node::Call(function, arguments))
            }
            Form::Conditional => {
                let condition = self.expression()?;
                let then = self.expression()?;
                let otherwise = self.expression()?;
                self.add(Node::Conditional(condition, then, otherwise))
            }
            Form::New => self.new_expression(operator, is_global),
            Form::Keyword => {
                let of = self.expression()?;
                self.add(Node::Bracketed(operator, of))
            }
            Form::OfType => {
                let of = self.type_()?;
                self.add(Node::Bracketed(operator, of))
            }
            Form::NamedCast => {
                let to = self.type_()?;
                let of = self.expression()?;
                self.add(Node::NamedCast(operator, to, of))
            }
        }
    }

    fn new_expression(&mut self, operator: &'static Operator, is_global: bool) -> Option<Id> {
        let placement = self.many("_", Self::expression)?;
        let of = self.type_()?;
        let arguments = if self.take("pi") {
            Some(self.many("E", Self::expression)?)
        } else if self.is_next("il") {
            let braced = self.expression()?;
            Some(self.tree.list(&[braced])?)
        } else {
            self.expect("E")?;
            None
        };
        let id = self.add(Node::New {
            operator,
            placement,
            of,
            arguments,
        })?;
        if is_global {
            self.add(Node::Global(id))
        } else {
            Some(id)
        }
    }

    /// A cast in the way of C or of a function.
    fn cast(&mut self) -> Option<Id> {
        self.expect("cv")?;
        let with_arguments = std::mem::replace(&mut self.with_arguments, false);
        let to = self.type_();
        self.with_arguments = with_arguments;
        let to = to?;
        if self.take("_") {
            let of = self.many("E", Self::expression)?;
            return self.add(Node::CastOfMany(to, of));
        }
        let of = self.expression()?;
        self.add(Node::Cast(to, of))
    }

    /// A part of an initialiser in braces, perhaps with its name or place.
    fn braced_item(&mut self) -> Option<Id> {
        self.within(|parser| {
            if parser.take("di") {
                let name = parser.source_name()?;
                let value = parser.braced_item()?;
                return parser.add(Node::Designated(name, value, false));
            }
            if parser.take("dx") {
                let place = parser.expression()?;
                let value = parser.braced_item()?;
                return parser.add(Node::Designated(place, value, true));
            }
            if parser.take("dX") {
                let first = parser.expression()?;
                let last = parser.expression()?;
                let value = parser.braced_item()?;
                return parser.add(Node::DesignatedRange(first, last, value));
            }
            parser.expression()
        })
    }

    fn function_parameter(&mut self) -> Option<Id> {
        if self.take("fpT") {
            return self.add(Node::This);
        }
        if self.take("fL") {
            self.number()?;
            self.expect("p")?;
        } else {
            self.expect("fp")?;
        }
        self.qualifiers();
        let number = self.ordinal()?.checked_add(1)?;
        self.add(Node::FunctionParameter(number))
    }

    fn fold(&mut self) -> Option<Id> {
        self.expect("f")?;
        let kind = self.look(0);
        self.text(1)?;
        let operator = operators::find([self.look(0), self.look(1)])?;
        self.text(2)?;
        let pack = self.expression()?;
        let other = if matches!(kind, b'L' | b'R') {
            Some(self.expression()?)
        } else {
            None
        };
        self.add(Node::Fold(operator, kind == b'l', pack, other))
    }

    fn subobject(&mut self) -> Option<Id> {
        self.expect("so")?;
        let of = self.type_()?;
        let base = self.expression()?;
        let offset = if self.look(0) == b'n' || self.look(0).is_ascii_digit() {
            self.signed()?
        } else {
            ""
        };
        while self.take("_") {
            self.text_while(|byte| byte.is_ascii_digit())?;
        }
        self.take("p");
        self.expect("E")?;
        self.add(Node::Subobject(base, of, offset))
    }

    fn vendor_call(&mut self) -> Option<Id> {
        self.expect("u")?;
        let name = self.identifier()?;
        let arguments = self.many("E", Self::template_argument)?;
        self.add(Node::VendorCall(name, arguments))
    }

    fn requires(&mut self) -> Option<Id> {
        let mut parameters = Vec::new();
        if self.take("rQ") {
            while !self.take("_") {
                parameters.push(self.type_()?);
            }
        } else {
            self.expect("rq")?;
        }
        let parameters = self.tree.list(&parameters)?;
        let requirements = self.many("E", Self::requirement)?;
        self.add(Node::Requires(parameters, requirements))
    }

    fn requirement(&mut self) -> Option<Id> {
        if self.take("X") {
            let of = self.expression()?;
            let is_noexcept = self.take("N");
            let result = if self.take("R") {
                Some(self.name(&mut super::parse::About::default())?)
            } else {
                None
            };
            return self.add(Node::RequiresExpression(of, is_noexcept, result));
        }
        if self.take("T") {
            let of = self.type_()?;
            return self.add(Node::RequiresType(of));
        }
        self.expect("Q")?;
        let of = self.expression()?;
        self.add(Node::RequiresNested(of))
    }
}
