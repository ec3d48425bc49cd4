//! The printer. Types have a part to the left of what is declared and one to its right:
//! `int (*` and `) [3]`.

use super::node::{Id, List, Node, Qualifiers, Reference, Scope, Tree};
use super::parse::Top;

/// How deeply parts may be nested. References to earlier parts make this deeper than the name is.
const MAX_DEPTH: u32 = 2 * super::MAX_DEPTH;
/// How many parts may be printed. Parts may be empty, so the length alone is no limit.
const MAX_STEPS: u32 = 1 << 18;

/// The name is beyond the bounds, or contradicts itself.
pub(super) struct Unprintable;

pub(super) type Printed = Result<(), Unprintable>;

pub(super) struct Printer<'t, 'a> {
    pub(super) tree: &'t Tree<'a>,
    pub(super) out: String,
    longest: usize,
    steps: u32,
    depth: u32,
    /// Where in the packs of the expansion that is being printed this is; none outside.
    pub(super) in_pack: Option<InPack>,
    /// The function whose template parameters are meant, if that is not the one in whose name they
    /// are.
    pub(super) elsewhere: Option<Scope>,
    /// Whether this is the signature of a lambda.
    pub(super) in_closure: bool,
}

/// The state of an expansion.
#[derive(Clone, Copy)]
pub(super) struct InPack {
    pub(super) place: usize,
    /// How many entries the first pack has; none before one was met.
    pub(super) len: Option<usize>,
}

pub(super) fn print(tree: &Tree<'_>, top: Top<'_>, longest: usize) -> Option<String> {
    let mut printer = Printer {
        tree,
        out: String::new(),
        longest,
        steps: 0,
        depth: 0,
        in_pack: None,
        elsewhere: None,
        in_closure: false,
    };
    printer.whole(top).ok()?;
    Some(printer.out)
}

impl<'a> Printer<'_, 'a> {
    fn whole(&mut self, top: Top<'_>) -> Printed {
        self.node(top.of)?;
        let mut rest = top.suffixes;
        while let Some(after) = rest.strip_prefix('.') {
            // Words and the numbers that follow them belong together: `.isra.0`.
            let mut len = after.find('.').unwrap_or(after.len());
            while let Some(next) = after.get(len..).and_then(|next| next.strip_prefix('.')) {
                let digits = next.bytes().take_while(u8::is_ascii_digit).count();
                if digits == 0 {
                    break;
                }
                len += 1 + digits;
            }
            self.text(" [clone .")?;
            self.text(after.get(..len).unwrap_or(after))?;
            self.text("]")?;
            rest = after.get(len..).unwrap_or_default();
        }
        Ok(())
    }

    pub(super) fn text(&mut self, text: &str) -> Printed {
        if self.out.len() + text.len() > self.longest {
            return Err(Unprintable);
        }
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn number(&mut self, number: u64) -> Printed {
        self.text(&number.to_string())
    }

    pub(super) fn last(&self) -> u8 {
        self.out.as_bytes().last().copied().unwrap_or_default()
    }

    /// Both parts of `id`.
    pub(super) fn node(&mut self, id: Id) -> Printed {
        self.left(id)?;
        self.right(id)
    }

    pub(super) fn get(&self, id: Id) -> Result<Node<'a>, Unprintable> {
        self.tree.get(id).ok_or(Unprintable)
    }

    pub(super) fn step(&mut self) -> Printed {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(Unprintable);
        }
        Ok(())
    }

    pub(super) fn within(&mut self, print: impl FnOnce(&mut Self) -> Printed) -> Printed {
        self.step()?;
        if self.depth >= MAX_DEPTH {
            return Err(Unprintable);
        }
        self.depth += 1;
        let printed = print(self);
        self.depth -= 1;
        printed
    }

    pub(super) fn left(&mut self, id: Id) -> Printed {
        self.within(|printer| {
            let node = printer.get(id)?;
            printer.name(node)
        })
    }

    /// Names, and what is printed for other kinds of parts.
    fn name(&mut self, node: Node<'a>) -> Printed {
        match node {
            Node::Name(name) | Node::Known(name) | Node::Builtin(name, _) => self.text(name),
            Node::Nested(scope, name) => {
                self.node(scope)?;
                self.text("::")?;
                self.node(name)
            }
            Node::Local(function, entity) => {
                self.node(function)?;
                self.text("::")?;
                self.node(entity)
            }
            Node::DefaultArgument(number, entity) => {
                self.text("{default arg#")?;
                self.number(number)?;
                self.text("}::")?;
                self.node(entity)
            }
            Node::Tagged(name, tag) => {
                self.node(name)?;
                self.text("[abi:")?;
                self.text(tag)?;
                self.text("]")
            }
            Node::Instance(template, arguments) => {
                self.node(template)?;
                self.arguments(arguments)
            }
            Node::Constructor(of) => self.base_name(of),
            Node::Destructor(of) => {
                self.text("~")?;
                self.base_name(of)
            }
            Node::Operator(operator) => {
                self.text("operator")?;
                if operator
                    .text
                    .starts_with(|first: char| first.is_ascii_lowercase())
                {
                    self.text(" ")?;
                }
                self.text(operator.text.trim_end())
            }
            Node::VendorOperator(name) => {
                self.text("operator ")?;
                self.text(name)
            }
            Node::Conversion(to) => {
                self.text("operator ")?;
                self.node(to)
            }
            Node::LiteralOperator(suffix) => {
                self.text("operator\"\" ")?;
                self.text(suffix)
            }
            Node::Closure {
                declared,
                parameters,
                number,
            } => {
                self.text("{lambda")?;
                if !declared.is_empty() {
                    self.arguments(declared)?;
                }
                self.text("(")?;
                let in_closure = std::mem::replace(&mut self.in_closure, true);
                self.list(parameters)?;
                self.in_closure = in_closure;
                self.text(")#")?;
                self.number(number)?;
                self.text("}")
            }
            Node::Unnamed(number) => {
                self.text("{unnamed type#")?;
                self.number(number)?;
                self.text("}")
            }
            Node::Bindings(names) => {
                self.text("[")?;
                self.list(names)?;
                self.text("]")
            }
            Node::Function { .. } => {
                // Its template parameters are its own, wherever it is.
                let in_closure = std::mem::replace(&mut self.in_closure, false);
                let elsewhere = self.elsewhere.take();
                self.function(node)?;
                self.elsewhere = elsewhere;
                self.in_closure = in_closure;
                Ok(())
            }
            Node::Special(prefix, of) => {
                self.text(prefix)?;
                self.node(of)
            }
            Node::Construction(of, within) => {
                self.text("construction vtable for ")?;
                self.node(of)?;
                self.text("-in-")?;
                self.node(within)
            }
            Node::Temporary(number, of) => {
                self.text("reference temporary #")?;
                self.number(number)?;
                self.text(" for ")?;
                self.node(of)
            }
            Node::DeclaredType(name) => {
                self.text("typename ")?;
                self.node(name)
            }
            Node::DeclaredValue(of, name) => {
                self.left(of)?;
                self.text(" ")?;
                self.node(name)?;
                self.right(of)
            }
            Node::DeclaredTemplate(declared, name) => {
                self.text("template")?;
                self.arguments(declared)?;
                self.text(" typename ")?;
                self.node(name)
            }
            Node::DeclaredPack(of) => match self.get(of)? {
                Node::DeclaredType(name) => {
                    self.text("typename...")?;
                    self.node(name)
                }
                _ => {
                    self.node(of)?;
                    self.text("...")
                }
            },
            Node::DeclaredConstrained(concept, name) => {
                self.node(concept)?;
                self.text(" ")?;
                self.node(name)
            }
            Node::Invented(prefix, number) => {
                self.text(prefix)?;
                match number.checked_sub(1) {
                    Some(number) => self.number(number),
                    None => Ok(()),
                }
            }
            _ => self.type_left(node),
        }
    }

    fn function(&mut self, node: Node<'a>) -> Printed {
        let Node::Function {
            name,
            result,
            parameters,
            qualifiers,
            explicit_object,
            requires,
        } = node
        else {
            return Ok(());
        };
        if let Some(result) = result {
            self.result(result)?;
        }
        self.node(name)?;
        self.text("(")?;
        if explicit_object {
            self.text("this ")?;
        }
        self.list(parameters)?;
        self.text(")")?;
        if let Some(result) = result {
            self.right(result)?;
        }
        self.qualifiers(qualifiers)?;
        if let Some(requires) = requires {
            self.text(" requires ")?;
            self.node(requires)?;
        }
        Ok(())
    }

    /// Template arguments in their brackets.
    pub(super) fn arguments(&mut self, arguments: List) -> Printed {
        if self.last() == b'<' {
            self.text(" ")?;
        }
        self.text("<")?;
        self.list(arguments)?;
        if self.last() == b'>' {
            self.text(" ")?;
        }
        self.text(">")
    }

    /// Parts with commas between those that are not empty.
    pub(super) fn list(&mut self, list: List) -> Printed {
        let tree = self.tree;
        let mut is_first = true;
        for entry in tree.entries(list) {
            let before = self.out.len();
            if !is_first {
                self.text(", ")?;
            }
            let after = self.out.len();
            self.node(*entry)?;
            if self.out.len() == after {
                self.out.truncate(before);
            } else {
                is_first = false;
            }
        }
        Ok(())
    }

    pub(super) fn qualifiers(&mut self, qualifiers: Qualifiers) -> Printed {
        if qualifiers.is_const {
            self.text(" const")?;
        }
        if qualifiers.is_volatile {
            self.text(" volatile")?;
        }
        if qualifiers.is_restrict {
            self.text(" restrict")?;
        }
        match qualifiers.reference {
            Some(Reference::Left) => self.text(" &"),
            Some(Reference::Right) => self.text(" &&"),
            None => Ok(()),
        }
    }

    /// The last part of a class's name, without template arguments.
    fn base_name(&mut self, mut id: Id) -> Printed {
        loop {
            self.step()?;
            id = match self.get(id)? {
                Node::Nested(_, name) | Node::Local(_, name) => name,
                Node::Instance(template, _) => template,
                Node::Tagged(name, _) | Node::Elsewhere(name, _) => name,
                Node::Known(name) => {
                    let name = name.split('<').next().unwrap_or(name);
                    return self.text(name.rsplit("::").next().unwrap_or(name));
                }
                _ => return self.node(id),
            };
        }
    }
}
