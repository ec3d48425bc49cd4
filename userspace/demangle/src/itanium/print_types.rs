//! How types are printed.

use super::node::{Exceptions, Id, List, Node, Qualifiers, Reference, Scope};
use super::print::{InPack, Printed, Printer, Unprintable};

/// Whether a pointer to a type needs brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Array,
    Function,
}

/// A part, and the function whose name refers to it, if that is not the one in which it is.
#[derive(Clone, Copy)]
struct Place {
    id: Id,
    elsewhere: Option<Scope>,
}

impl<'a> Printer<'_, 'a> {
    pub(super) fn type_left(&mut self, node: Node<'a>) -> Printed {
        match node {
            Node::Pointer(to) => self.declarator(to, "*"),
            Node::Reference(kind, to) => {
                let (kind, to) = self.collapsed(kind, to)?;
                self.at(to, |printer, to| printer.declarator(to, reference(kind)))
            }
            Node::Complex(word, of) => {
                self.left(of)?;
                self.text(word)
            }
            Node::Qualified(of, qualifiers) => {
                self.left(of)?;
                self.qualifiers(qualifiers)
            }
            Node::VendorQualified(of, name, arguments) => {
                self.left(of)?;
                self.text(" ")?;
                self.text(name)?;
                arguments.map_or(Ok(()), |arguments| self.arguments(arguments))
            }
            Node::FunctionType { result, .. } => self.result(result),
            Node::Array(_, of) => self.left(of),
            Node::Vector(size, of) => {
                self.node(of)?;
                self.text(" __vector(")?;
                self.node(size)?;
                self.text(")")
            }
            Node::MemberPointer(class, member) => {
                self.left(member)?;
                match self.shape(member)? {
                    Shape::Plain => self.text(" ")?,
                    Shape::Array => self.text(" (")?,
                    Shape::Function => self.text("(")?,
                }
                self.node(class)?;
                self.text("::*")
            }
            Node::Elaborated(keyword, of) => {
                self.text(keyword)?;
                self.node(of)
            }
            Node::Decltype(of) => {
                self.text("decltype (")?;
                self.node(of)?;
                self.text(")")
            }
            Node::Constrained(concept, word) => {
                self.node(concept)?;
                self.text(word)
            }
            Node::BitInt(word, size) => {
                self.text(word)?;
                self.text("(")?;
                self.node(size)?;
                self.text(")")
            }
            Node::FloatOf(bits) => {
                self.text("_Float")?;
                self.text(bits)
            }
            Node::Parameter(number, _) => match self.stands_for(node, self.elsewhere) {
                Some(place) => self.at(place, Self::left),
                None => {
                    self.text("auto:")?;
                    self.number(u64::try_from(number).unwrap_or(u64::MAX).saturating_add(1))
                }
            },
            Node::Elsewhere(..) => match self.stands_for(node, self.elsewhere) {
                Some(place) => self.at(place, Self::left),
                None => Ok(()),
            },
            Node::Arguments(list) => self.list(list),
            Node::Pack(list) => match self.entry(list) {
                Some(entry) => self.left(entry),
                None => Ok(()),
            },
            Node::Expansion(of) => self.expansion(of),
            _ => self.expression(node),
        }
    }

    pub(super) fn right(&mut self, id: Id) -> Printed {
        self.within(|printer| match printer.get(id)? {
            Node::Pointer(to) => printer.after_declarator(to),
            Node::Reference(kind, to) => {
                let (_, to) = printer.collapsed(kind, to)?;
                printer.at(to, Self::after_declarator)
            }
            Node::MemberPointer(_, member) => printer.after_declarator(member),
            Node::Complex(_, of) | Node::Qualified(of, _) | Node::VendorQualified(of, _, _) => {
                printer.right(of)
            }
            Node::FunctionType {
                result,
                parameters,
                qualifiers,
                exceptions,
            } => {
                printer.text("(")?;
                printer.list(parameters)?;
                printer.text(")")?;
                printer.right(result)?;
                printer.function_end(qualifiers, exceptions)
            }
            Node::Array(size, of) => {
                if printer.last() != b']' {
                    printer.text(" ")?;
                }
                printer.text("[")?;
                if let Some(size) = size {
                    printer.node(size)?;
                }
                printer.text("]")?;
                printer.right(of)
            }
            node @ (Node::Parameter(..) | Node::Elsewhere(..)) => {
                match printer.stands_for(node, printer.elsewhere) {
                    Some(place) => printer.at(place, Self::right),
                    None => Ok(()),
                }
            }
            Node::Pack(list) => match printer.entry(list) {
                Some(entry) => printer.right(entry),
                None => Ok(()),
            },
            _ => Ok(()),
        })
    }

    /// What stands before the name of a function, or the brackets of its parameters.
    pub(super) fn result(&mut self, result: Id) -> Printed {
        self.left(result)?;
        if self.has_right(result)? {
            Ok(())
        } else {
            self.text(" ")
        }
    }

    fn function_end(&mut self, qualifiers: Qualifiers, exceptions: Exceptions) -> Printed {
        self.qualifiers(qualifiers)?;
        match exceptions {
            Exceptions::Unsaid => Ok(()),
            Exceptions::Noexcept => self.text(" noexcept"),
            Exceptions::NoexceptIf(condition) => {
                self.text(" noexcept(")?;
                self.node(condition)?;
                self.text(")")
            }
            Exceptions::Throw(types) => {
                self.text(" throw(")?;
                self.list(types)?;
                self.text(")")
            }
        }
    }

    fn declarator(&mut self, to: Id, mark: &str) -> Printed {
        self.left(to)?;
        match self.shape(to)? {
            Shape::Plain => {}
            Shape::Array => self.text(" (")?,
            Shape::Function => self.text("(")?,
        }
        self.text(mark)
    }

    fn after_declarator(&mut self, to: Id) -> Printed {
        if self.shape(to)? != Shape::Plain {
            self.text(")")?;
        }
        self.right(to)
    }

    /// What a part stands for, if it stands for another one, seen from `elsewhere`.
    fn stands_for(&mut self, node: Node<'a>, elsewhere: Option<Scope>) -> Option<Place> {
        let (id, elsewhere) = match node {
            Node::Parameter(_, here) if self.in_closure => {
                // Either the lambda declares it, or it is what `auto` stands for.
                let declared = here.and_then(|here| self.tree.get(here));
                let Some(Node::Invented(..)) = declared else {
                    return None;
                };
                (here?, None)
            }
            Node::Parameter(number, here) => {
                let there = elsewhere.and_then(|scope| self.tree.argument(scope, number));
                (there.or(here)?, None)
            }
            Node::Elsewhere(of, scope) => (of, Some(scope)),
            Node::Pack(list) => (self.entry(list)?, elsewhere),
            _ => return None,
        };
        Some(Place { id, elsewhere })
    }

    /// Prints what is at `place`.
    fn at(&mut self, place: Place, print: impl FnOnce(&mut Self, Id) -> Printed) -> Printed {
        let outer = std::mem::replace(&mut self.elsewhere, place.elsewhere);
        let printed = print(self, place.id);
        self.elsewhere = outer;
        printed
    }

    /// The part at `place`, or what it stands for.
    fn resolved(&mut self, mut place: Place) -> Result<(Place, Node<'a>), Unprintable> {
        loop {
            self.step()?;
            let node = self.get(place.id)?;
            match self.stands_for(node, place.elsewhere) {
                Some(next) => place = next,
                None => return Ok((place, node)),
            }
        }
    }

    fn here(&self, id: Id) -> Place {
        Place {
            id,
            elsewhere: self.elsewhere,
        }
    }

    /// A reference to a reference is a reference: `&&` only if both are.
    fn collapsed(
        &mut self,
        mut kind: Reference,
        to: Id,
    ) -> Result<(Reference, Place), Unprintable> {
        let mut place = self.here(to);
        loop {
            let (within, node) = self.resolved(place)?;
            let Node::Reference(inner, of) = node else {
                return Ok((kind, place));
            };
            if inner == Reference::Left {
                kind = Reference::Left;
            }
            place = Place { id: of, ..within };
        }
    }

    fn shape(&mut self, id: Id) -> Result<Shape, Unprintable> {
        let place = self.here(id);
        self.shape_at(place)
    }

    fn shape_at(&mut self, mut place: Place) -> Result<Shape, Unprintable> {
        loop {
            let (within, node) = self.resolved(place)?;
            let id = match node {
                Node::Array(..) => return Ok(Shape::Array),
                Node::FunctionType { .. } => return Ok(Shape::Function),
                Node::Qualified(of, _) | Node::VendorQualified(of, _, _) | Node::Complex(_, of) => {
                    of
                }
                _ => return Ok(Shape::Plain),
            };
            place = Place { id, ..within };
        }
    }

    /// Whether something of a type is printed behind what is declared.
    fn has_right(&mut self, id: Id) -> Result<bool, Unprintable> {
        let mut place = self.here(id);
        loop {
            if self.shape_at(place)? != Shape::Plain {
                return Ok(true);
            }
            let (within, node) = self.resolved(place)?;
            let id = match node {
                Node::Pointer(of)
                | Node::Reference(_, of)
                | Node::MemberPointer(_, of)
                | Node::Qualified(of, _)
                | Node::VendorQualified(of, _, _) => of,
                _ => return Ok(false),
            };
            place = Place { id, ..within };
        }
    }

    /// The entry of a pack that is to be printed; outside an expansion, the first.
    fn entry(&mut self, list: List) -> Option<Id> {
        let place = match &mut self.in_pack {
            Some(in_pack) => {
                in_pack.len.get_or_insert(list.len());
                in_pack.place
            }
            None => 0,
        };
        self.tree.entries(list).get(place).copied()
    }

    /// A pattern, once for each entry of its packs.
    fn expansion(&mut self, of: Id) -> Printed {
        let outer = self.in_pack.replace(InPack {
            place: 0,
            len: None,
        });
        let begin = self.out.len();
        self.node(of)?;
        let len = self.in_pack.and_then(|in_pack| in_pack.len);
        match len {
            None => self.text("...")?,
            Some(0) => self.out.truncate(begin),
            Some(len) => {
                for place in 1..len {
                    self.text(", ")?;
                    self.in_pack = Some(InPack {
                        place,
                        len: Some(len),
                    });
                    self.node(of)?;
                }
            }
        }
        self.in_pack = outer;
        Ok(())
    }

    /// How many entries the pack has that a part stands for.
    pub(super) fn pack_len(&mut self, id: Id) -> Result<Option<usize>, Unprintable> {
        let mut place = self.here(id);
        loop {
            self.step()?;
            let node = self.get(place.id)?;
            if let Node::Pack(list) | Node::Arguments(list) = node {
                return Ok(Some(list.len()));
            }
            match self.stands_for(node, place.elsewhere) {
                Some(next) => place = next,
                None => return Ok(None),
            }
        }
    }
}

fn reference(kind: Reference) -> &'static str {
    match kind {
        Reference::Left => "&",
        Reference::Right => "&&",
    }
}
