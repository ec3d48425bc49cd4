//! Names: of functions and data, nested, local, and of things that have none.

use super::node::{Id, List, Node, Qualifiers, Reference};
use super::operators;
use super::parse::{About, Parser};

impl<'a> Parser<'a> {
    /// A function with its parameters, or data, or something special.
    pub(super) fn encoding(&mut self) -> Option<Id> {
        self.within(|parser| {
            if matches!(parser.look(0), b'T' | b'G') {
                return parser.special();
            }
            // What template parameters stand for is this function's own matter.
            let outer = std::mem::take(&mut parser.parameters);
            let scope = parser.tree.add_scope()?;
            let outer_scope = std::mem::replace(&mut parser.scope, scope);
            let encoding = parser.function_or_data();
            parser.scope = outer_scope;
            let own = std::mem::replace(&mut parser.parameters, outer);
            if let Some(own) = own.into_iter().next() {
                parser.tree.set_scope(scope, own);
            }
            encoding
        })
    }

    fn function_or_data(&mut self) -> Option<Id> {
        let mut about = About {
            is_function: true,
            ..About::default()
        };
        let first_ahead = self.ahead.len();
        let name = self.name(&mut about)?;
        self.resolve(first_ahead)?;
        if self.is_encoding_over() {
            return Some(name);
        }
        if self.take("Ua9enable_if") {
            // A condition of clang's, which is no part of the declaration.
            self.template_arguments(false)?;
        }
        let result = if about.is_instance && !about.without_result {
            Some(self.type_()?)
        } else {
            None
        };
        let mut parameters = Vec::new();
        if !self.take("v") {
            while !self.is_encoding_over() && self.look(0) != b'Q' {
                parameters.push(self.type_()?);
            }
            if parameters.is_empty() {
                return None;
            }
        }
        let requires = self.constraint()?;
        let parameters = self.tree.list(&parameters)?;
        self.add(Node::Function {
            name,
            result,
            parameters,
            qualifiers: about.qualifiers,
            explicit_object: about.explicit_object,
            requires,
        })
    }

    /// Says of the template parameters that were read ahead what they stand for.
    fn resolve(&mut self, first: usize) -> Option<()> {
        while self.ahead.len() > first {
            let (id, number) = self.ahead.pop()?;
            let argument = *self.parameters.first()?.get(number)?;
            self.tree.set(id, Node::Parameter(number, Some(argument)));
        }
        Some(())
    }

    /// `Q` and an expression, if it is there.
    pub(super) fn constraint(&mut self) -> Option<Option<Id>> {
        if self.take("Q") {
            self.expression().map(Some)
        } else {
            Some(None)
        }
    }

    pub(super) fn name(&mut self, about: &mut About) -> Option<Id> {
        self.within(|parser| match parser.look(0) {
            b'N' => parser.nested_name(about),
            b'Z' => parser.local_name(about),
            _ => parser.unscoped_name(about),
        })
    }

    fn unscoped_name(&mut self, about: &mut About) -> Option<Id> {
        let is_substitution = self.look(0) == b'S' && self.look(1) != b't';
        let name = if is_substitution {
            self.substitution()?
        } else if self.take("St") {
            let scope = self.add(Node::Name("std"))?;
            let name = self.unqualified_name(about, Some(scope))?;
            self.add(Node::Nested(scope, name))?
        } else {
            self.unqualified_name(about, None)?
        };
        if self.look(0) != b'I' {
            return Some(name);
        }
        if !is_substitution {
            self.remember(name);
        }
        let arguments = self.template_arguments(about.is_function)?;
        about.is_instance = true;
        self.add(Node::Instance(name, arguments))
    }

    fn nested_name(&mut self, about: &mut About) -> Option<Id> {
        self.expect("N")?;
        if self.take("H") {
            about.explicit_object = true;
        } else {
            about.qualifiers = self.qualifiers();
            if self.take("R") {
                about.qualifiers.reference = Some(Reference::Left);
            } else if self.take("O") {
                about.qualifiers.reference = Some(Reference::Right);
            }
        }
        let mut scope: Option<Id> = None;
        let mut is_complete = false;
        while !self.take("E") {
            about.is_instance = false;
            let next = match (self.look(0), self.look(1)) {
                (b'I', _) => {
                    let arguments = self.template_arguments(about.is_function)?;
                    about.is_instance = true;
                    self.add(Node::Instance(scope?, arguments))?
                }
                (b'T', _) if scope.is_none() => self.template_parameter()?,
                (b'D', b't' | b'T') if scope.is_none() => self.decltype()?,
                (b'S', b't') if scope.is_none() => {
                    self.expect("St")?;
                    scope = Some(self.add(Node::Name("std"))?);
                    continue;
                }
                (b'S', _) if scope.is_none() => {
                    scope = Some(self.substitution()?);
                    continue;
                }
                _ => {
                    about.without_result = false;
                    let name = self.unqualified_name(about, scope)?;
                    match scope {
                        Some(scope) => self.add(Node::Nested(scope, name))?,
                        None => name,
                    }
                }
            };
            scope = Some(next);
            is_complete = true;
            self.remember(next);
            // The member in whose initialiser a lambda is.
            self.take("M");
        }
        // The whole name is what others push, if it is a type.
        if is_complete {
            self.forget();
        }
        scope.filter(|_| is_complete)
    }

    fn local_name(&mut self, about: &mut About) -> Option<Id> {
        self.expect("Z")?;
        let function = self.encoding()?;
        self.expect("E")?;
        // The result of the function around would be taken for that of the one within.
        let function = match self.tree.get(function)? {
            Node::Function {
                name,
                result: Some(_),
                parameters,
                qualifiers,
                explicit_object,
                requires,
            } => self.add(Node::Function {
                name,
                result: None,
                parameters,
                qualifiers,
                explicit_object,
                requires,
            })?,
            _ => function,
        };
        if self.take("s") {
            self.discriminator()?;
            let literal = self.add(Node::Name("string literal"))?;
            return self.add(Node::Local(function, literal));
        }
        let default = if self.take("d") {
            Some(self.ordinal()?)
        } else {
            None
        };
        let mut entity = self.name(about)?;
        if let Some(number) = default {
            entity = self.add(Node::DefaultArgument(number.checked_add(1)?, entity))?;
        } else {
            self.discriminator()?;
        }
        self.add(Node::Local(function, entity))
    }

    /// What tells entities of one name in one function apart; it is not shown.
    fn discriminator(&mut self) -> Option<()> {
        if self.look(0) == b'_' && self.look(1).is_ascii_digit() {
            self.text(2)?;
        } else if self.take("__") {
            self.number()?;
            self.expect("_")?;
        }
        Some(())
    }

    pub(super) fn unqualified_name(&mut self, about: &mut About, scope: Option<Id>) -> Option<Id> {
        self.take("F");
        self.take("L");
        let name = match (self.look(0), self.look(1)) {
            (b'1'..=b'9', _) => self.source_name()?,
            (b'U', _) => self.nameless()?,
            (b'D', b'C') => {
                self.expect("DC")?;
                let names = self.many("E", Self::source_name)?;
                self.add(Node::Bindings(names))?
            }
            (b'C' | b'D', _) => self.constructor(about, scope?)?,
            _ => self.operator_name(about)?,
        };
        self.tags(name)
    }

    /// The ABI tags behind a name.
    pub(super) fn tags(&mut self, mut name: Id) -> Option<Id> {
        while self.take("B") {
            let len = usize::try_from(self.number()?).ok()?;
            let tag = self.text(len)?;
            name = self.add(Node::Tagged(name, tag))?;
        }
        Some(name)
    }

    pub(super) fn source_name(&mut self) -> Option<Id> {
        let name = self.identifier()?;
        self.add(Node::Name(name))
    }

    pub(super) fn identifier(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.number()?).ok()?;
        if len == 0 {
            return None;
        }
        let name = self.text(len)?;
        let is_anonymous = name
            .strip_prefix("_GLOBAL_")
            .is_some_and(|rest| matches!(rest.as_bytes(), [b'.' | b'_' | b'$', b'N', ..]));
        Some(if is_anonymous {
            "(anonymous namespace)"
        } else {
            name
        })
    }

    fn constructor(&mut self, about: &mut About, scope: Id) -> Option<Id> {
        about.without_result = true;
        if self.take("C") {
            let inherits = self.take("I");
            if !matches!(self.look(0), b'1'..=b'5') {
                return None;
            }
            self.text(1)?;
            if inherits {
                self.name(&mut About::default())?;
            }
            return self.add(Node::Constructor(scope));
        }
        self.expect("D")?;
        if !matches!(self.look(0), b'0'..=b'5') {
            return None;
        }
        self.text(1)?;
        self.add(Node::Destructor(scope))
    }

    /// The name of a type, lambda or block that has none.
    fn nameless(&mut self) -> Option<Id> {
        if self.take("Ut") {
            let number = self.ordinal()?.checked_add(1)?;
            return self.add(Node::Unnamed(number));
        }
        if self.take("Ul") {
            return self.within(Self::closure);
        }
        self.expect("Ub")?;
        self.ordinal()?;
        self.add(Node::Name("'block-literal'"))
    }

    fn closure(&mut self) -> Option<Id> {
        // Template parameters in its signature are its own.
        let outer = std::mem::replace(&mut self.parameters, vec![Vec::new()]);
        let in_closure = std::mem::replace(&mut self.in_closure, true);
        let scope = self.tree.add_scope()?;
        let outer_scope = std::mem::replace(&mut self.scope, scope);
        let signature = self.signature();
        self.scope = outer_scope;
        self.parameters = outer;
        self.in_closure = in_closure;
        let (declared, parameters) = signature?;
        let number = self.ordinal()?.checked_add(1)?;
        self.add(Node::Closure {
            declared,
            parameters,
            number,
        })
    }

    /// The declared template parameters and the parameters of a lambda.
    fn signature(&mut self) -> Option<(List, List)> {
        let mut declared = Vec::new();
        while self.is_declaration() {
            declared.push(self.declaration()?);
        }
        self.constraint()?;
        let mut parameters = Vec::new();
        if !self.take("v") {
            while !matches!(self.look(0), b'E' | b'Q') {
                parameters.push(self.type_()?);
            }
        }
        self.constraint()?;
        self.expect("E")?;
        Some((self.tree.list(&declared)?, self.tree.list(&parameters)?))
    }

    pub(super) fn operator_name(&mut self, about: &mut About) -> Option<Id> {
        if self.take("cv") {
            about.without_result = true;
            let with_arguments = std::mem::replace(&mut self.with_arguments, false);
            let may_be_ahead = self.may_be_ahead;
            self.may_be_ahead |= about.is_function;
            let to = self.type_();
            self.with_arguments = with_arguments;
            self.may_be_ahead = may_be_ahead;
            return self.add(Node::Conversion(to?));
        }
        if self.take("li") {
            let suffix = self.identifier()?;
            return self.add(Node::LiteralOperator(suffix));
        }
        if self.look(0) == b'v' && self.look(1).is_ascii_digit() {
            self.text(2)?;
            let name = self.identifier()?;
            return self.add(Node::VendorOperator(name));
        }
        let operator = operators::find([self.look(0), self.look(1)])?;
        self.text(2)?;
        if operator.is_name {
            self.add(Node::Operator(operator))
        } else {
            None
        }
    }

    /// Template arguments; those of a function are what its template parameters stand for.
    pub(super) fn template_arguments(&mut self, of_function: bool) -> Option<List> {
        self.expect("I")?;
        let with_arguments = std::mem::replace(&mut self.with_arguments, true);
        let list = self.template_arguments_here(of_function);
        self.with_arguments = with_arguments;
        list
    }

    fn template_arguments_here(&mut self, of_function: bool) -> Option<List> {
        if of_function {
            self.parameters.clear();
            self.parameters.push(Vec::new());
        }
        let mut arguments = Vec::new();
        while !self.take("E") {
            if self.constraint()?.is_some() {
                continue;
            }
            let argument = self.template_argument()?;
            arguments.push(argument);
            if of_function {
                let value = match self.tree.get(argument)? {
                    Node::Arguments(list) => self.add(Node::Pack(list))?,
                    _ => argument,
                };
                self.parameters.first_mut()?.push(value);
            }
        }
        self.tree.list(&arguments)
    }

    pub(super) fn template_argument(&mut self) -> Option<Id> {
        self.within(|parser| {
            // clang says here how the parameter is declared where that tells functions apart.
            // People see that in the argument.
            if parser.is_declaration() {
                parser.argument_declaration()?;
            }
            match parser.look(0) {
                b'X' => {
                    parser.expect("X")?;
                    let value = parser.expression()?;
                    parser.expect("E")?;
                    Some(value)
                }
                b'J' | b'I' => {
                    parser.text(1)?;
                    let list = parser.many("E", Self::template_argument)?;
                    parser.add(Node::Arguments(list))
                }
                b'L' => parser.literal(),
                _ => parser.type_(),
            }
        })
    }

    /// How the parameter of a template argument is declared. Names in it may be those of parameters
    /// whose arguments are still to come, itself included.
    fn argument_declaration(&mut self) -> Option<()> {
        let levels = self.parameters.len();
        let invented = self.invented;
        let in_declaration = std::mem::replace(&mut self.in_declaration, true);
        if levels == 0 {
            self.parameters.push(Vec::new());
        }
        self.parameters.push(Vec::new());
        let declaration = self.declaration();
        self.parameters.truncate(levels);
        self.invented = invented;
        self.in_declaration = in_declaration;
        declaration.map(|_| ())
    }

    /// Whether the declaration of a template parameter follows.
    pub(super) fn is_declaration(&self) -> bool {
        self.look(0) == b'T' && matches!(self.look(1), b'y' | b'n' | b't' | b'p' | b'k')
    }

    pub(super) fn declaration(&mut self) -> Option<Id> {
        self.within(|parser| {
            if parser.take("Ty") {
                let name = parser.invent(0, "$T")?;
                return parser.add(Node::DeclaredType(name));
            }
            if parser.take("Tk") {
                let concept = parser.name(&mut About::default())?;
                let name = parser.invent(0, "$T")?;
                return parser.add(Node::DeclaredConstrained(concept, name));
            }
            if parser.take("Tn") {
                let name = parser.invent(1, "$N")?;
                let of = parser.type_()?;
                return parser.add(Node::DeclaredValue(of, name));
            }
            if parser.take("Tt") {
                let name = parser.invent(2, "$TT")?;
                let levels = parser.parameters.len();
                parser.parameters.push(Vec::new());
                let mut declared = Vec::new();
                while !parser.take("E") {
                    if parser.constraint()?.is_none() {
                        declared.push(parser.declaration()?);
                    }
                }
                parser.parameters.truncate(levels);
                let declared = parser.tree.list(&declared)?;
                return parser.add(Node::DeclaredTemplate(declared, name));
            }
            parser.expect("Tp")?;
            let of = parser.declaration()?;
            parser.add(Node::DeclaredPack(of))
        })
    }

    fn invent(&mut self, kind: usize, prefix: &'static str) -> Option<Id> {
        let count = self.invented.get_mut(kind)?;
        let number = *count;
        *count += 1;
        let name = self.add(Node::Invented(prefix, number))?;
        self.parameters.last_mut()?.push(name);
        Some(name)
    }

    /// What a template parameter stands for, or a place for it.
    pub(super) fn template_parameter(&mut self) -> Option<Id> {
        self.expect("T")?;
        let level = if self.take("L") {
            let number = usize::try_from(self.number()?).ok()?;
            self.expect("_")?;
            number.checked_add(1)?
        } else {
            0
        };
        let number = usize::try_from(self.ordinal()?).ok()?;
        let declared = self.parameters.get(level);
        let stands_for = declared.and_then(|level| level.get(number)).copied();
        self.has_parameters = true;
        if self.in_closure {
            return self.add(Node::Parameter(number, stands_for));
        }
        let is_ahead = self.may_be_ahead || (self.in_declaration && stands_for.is_none());
        if is_ahead && level == 0 {
            let id = self.add(Node::Parameter(number, None))?;
            self.ahead.push((id, number));
            return Some(id);
        }
        self.add(Node::Parameter(number, Some(stands_for?)))
    }

    /// `r`, `V` and `K`.
    pub(super) fn qualifiers(&mut self) -> Qualifiers {
        Qualifiers {
            is_restrict: self.take("r"),
            is_volatile: self.take("V"),
            is_const: self.take("K"),
            reference: None,
        }
    }
}
