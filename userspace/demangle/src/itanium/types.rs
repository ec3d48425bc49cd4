//! Types, and references to earlier parts.

use super::node::{Exceptions, Id, Node, Reference};
use super::parse::{About, Parser};

impl Parser<'_> {
    pub(super) fn type_(&mut self) -> Option<Id> {
        self.within(Self::type_here)
    }

    fn type_here(&mut self) -> Option<Id> {
        let (first, second) = (self.look(0), self.look(1));
        if let Some((len, node)) = builtin(first, second) {
            self.text(len)?;
            return self.add(node);
        }
        match (first, second) {
            (b'r' | b'V' | b'K', _) => self.qualified(),
            (b'P', _) => {
                self.text(1)?;
                let to = self.type_()?;
                self.add_substitution(Node::Pointer(to))
            }
            (b'R' | b'O', _) => {
                self.text(1)?;
                let to = self.type_()?;
                let kind = if first == b'R' {
                    Reference::Left
                } else {
                    Reference::Right
                };
                self.add_substitution(Node::Reference(kind, to))
            }
            (b'C' | b'G', _) => {
                self.text(1)?;
                let of = self.type_()?;
                let word = if first == b'C' {
                    " _Complex"
                } else {
                    " _Imaginary"
                };
                self.add_substitution(Node::Complex(word, of))
            }
            (b'F', _) | (b'D', b'o' | b'O' | b'w' | b'x') => {
                let function = self.function_type()?;
                self.remember(function);
                Some(function)
            }
            (b'A', _) => self.array(),
            (b'M', _) => {
                self.text(1)?;
                let class = self.type_()?;
                let member = self.type_()?;
                self.add_substitution(Node::MemberPointer(class, member))
            }
            (b'T', b's' | b'u' | b'e') => {
                self.text(2)?;
                let keyword = match second {
                    b's' => "struct ",
                    b'u' => "union ",
                    _ => "enum ",
                };
                let of = self.name(&mut About::default())?;
                self.add_substitution(Node::Elaborated(keyword, of))
            }
            (b'T', _) => {
                let parameter = self.template_parameter()?;
                self.remember(parameter);
                if self.with_arguments {
                    self.instance_of(parameter)
                } else {
                    Some(parameter)
                }
            }
            (b'S', b't') => self.class(),
            (b'S', _) => {
                let earlier = self.substitution()?;
                self.instance_of(earlier)
            }
            (b'D', _) => self.extended(),
            (b'U', second) if !matches!(second, b't' | b'l' | b'b') => self.vendor_qualified(),
            (b'u', _) => {
                self.text(1)?;
                let name = self.source_name()?;
                let mut node = name;
                if self.look(0) == b'I' {
                    let arguments = self.template_arguments(false)?;
                    node = self.add(Node::Instance(name, arguments))?;
                }
                self.remember(node);
                Some(node)
            }
            _ => self.class(),
        }
    }

    /// A template parameter or an earlier part, perhaps with template arguments.
    fn instance_of(&mut self, template: Id) -> Option<Id> {
        if self.look(0) != b'I' {
            return Some(template);
        }
        let arguments = self.template_arguments(false)?;
        self.add_substitution(Node::Instance(template, arguments))
    }

    fn class(&mut self) -> Option<Id> {
        let name = self.name(&mut About::default())?;
        self.remember(name);
        Some(name)
    }

    fn qualified(&mut self) -> Option<Id> {
        let mut places = 0;
        while matches!(self.look(places), b'r' | b'V' | b'K') && places < 3 {
            places += 1;
        }
        let is_function = matches!(
            (self.look(places), self.look(places + 1)),
            (b'F', _) | (b'D', b'o' | b'O' | b'w' | b'x')
        );
        if is_function {
            let function = self.function_type()?;
            self.remember(function);
            return Some(function);
        }
        let qualifiers = self.qualifiers();
        let of = self.type_()?;
        self.add_substitution(Node::Qualified(of, qualifiers))
    }

    fn vendor_qualified(&mut self) -> Option<Id> {
        self.expect("U")?;
        let name = self.identifier()?;
        let arguments = if self.look(0) == b'I' {
            Some(self.template_arguments(false)?)
        } else {
            None
        };
        let of = self.type_()?;
        self.add_substitution(Node::VendorQualified(of, name, arguments))
    }

    fn function_type(&mut self) -> Option<Id> {
        let mut qualifiers = self.qualifiers();
        let exceptions = if self.take("Do") {
            Exceptions::Noexcept
        } else if self.take("DO") {
            let condition = self.expression()?;
            self.expect("E")?;
            Exceptions::NoexceptIf(condition)
        } else if self.take("Dw") {
            Exceptions::Throw(self.many("E", Self::type_)?)
        } else {
            Exceptions::Unsaid
        };
        self.take("Dx");
        self.expect("F")?;
        self.take("Y");
        let result = self.type_()?;
        let mut parameters = Vec::new();
        loop {
            if self.take("E") {
                break;
            }
            if self.take("RE") {
                qualifiers.reference = Some(Reference::Left);
                break;
            }
            if self.take("OE") {
                qualifiers.reference = Some(Reference::Right);
                break;
            }
            if self.take("v") {
                continue;
            }
            parameters.push(self.type_()?);
        }
        let parameters = self.tree.list(&parameters)?;
        self.add(Node::FunctionType {
            result,
            parameters,
            qualifiers,
            exceptions,
        })
    }

    fn array(&mut self) -> Option<Id> {
        self.expect("A")?;
        let size = if self.take("_") {
            None
        } else {
            let size = self.size()?;
            self.expect("_")?;
            Some(size)
        };
        let of = self.type_()?;
        self.add_substitution(Node::Array(size, of))
    }

    /// A number or an expression.
    fn size(&mut self) -> Option<Id> {
        let digits = self.text_while(|byte| byte.is_ascii_digit())?;
        if digits.is_empty() {
            self.expression()
        } else {
            self.add(Node::Name(digits))
        }
    }

    /// Types whose codes begin with `D`.
    fn extended(&mut self) -> Option<Id> {
        match self.look(1) {
            b't' | b'T' => {
                let of = self.decltype()?;
                self.remember(of);
                Some(of)
            }
            b'p' => {
                self.text(2)?;
                let of = self.type_()?;
                self.add_substitution(Node::Expansion(of))
            }
            b'v' => {
                self.text(2)?;
                let size = if self.take("_") {
                    self.expression()?
                } else {
                    self.size()?
                };
                self.expect("_")?;
                let of = self.type_()?;
                self.add_substitution(Node::Vector(size, of))
            }
            b'k' | b'K' => {
                let word = if self.look(1) == b'k' {
                    " auto"
                } else {
                    " decltype(auto)"
                };
                self.text(2)?;
                let concept = self.name(&mut About::default())?;
                self.add_substitution(Node::Constrained(concept, word))
            }
            b'B' | b'U' => {
                let word = if self.look(1) == b'B' {
                    "_BitInt"
                } else {
                    "unsigned _BitInt"
                };
                self.text(2)?;
                let size = self.size()?;
                self.expect("_")?;
                self.add(Node::BitInt(word, size))
            }
            b'F' => {
                self.text(2)?;
                let digits = self.text_while(|byte| byte.is_ascii_digit())?;
                if self.take("b") {
                    return self.add(Node::Builtin("std::bfloat16_t", None));
                }
                // `x` for types of at least that size.
                self.take("x");
                self.take("_");
                self.add(Node::FloatOf(digits))
            }
            _ => None,
        }
    }

    pub(super) fn decltype(&mut self) -> Option<Id> {
        if !self.take("Dt") {
            self.expect("DT")?;
        }
        let of = self.expression()?;
        self.expect("E")?;
        self.add(Node::Decltype(of))
    }

    /// `S` and what was read earlier, or an abbreviation of the standard library.
    pub(super) fn substitution(&mut self) -> Option<Id> {
        self.expect("S")?;
        // Constructors and the like show which template the class comes from.
        let is_class = matches!(self.look(1), b'C' | b'D') && self.look(2).is_ascii_digit();
        let known = match self.look(0) {
            b'a' => "std::allocator",
            b'b' => "std::basic_string",
            b's' if is_class => {
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >"
            }
            b's' => "std::string",
            b'i' if is_class => "std::basic_istream<char, std::char_traits<char> >",
            b'i' => "std::istream",
            b'o' if is_class => "std::basic_ostream<char, std::char_traits<char> >",
            b'o' => "std::ostream",
            b'd' if is_class => "std::basic_iostream<char, std::char_traits<char> >",
            b'd' => "std::iostream",
            _ => {
                let number = usize::try_from(self.sequence()?).ok()?;
                return self.remembered(number);
            }
        };
        self.text(1)?;
        let name = self.add(Node::Known(known))?;
        let tagged = self.tags(name)?;
        if tagged != name {
            self.remember(tagged);
        }
        Some(tagged)
    }

    /// `_` for 0, `0_` for 1, and so on in base 36.
    pub(super) fn sequence(&mut self) -> Option<u64> {
        if self.take("_") {
            return Some(0);
        }
        let digits = self.text_while(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())?;
        self.expect("_")?;
        u64::from_str_radix(digits, 36).ok()?.checked_add(1)
    }
}

/// A type of the language, and how long its code is.
fn builtin(first: u8, second: u8) -> Option<(usize, Node<'static>)> {
    let (name, suffix) = match (first, second) {
        (b'v', _) => ("void", None),
        (b'w', _) => ("wchar_t", None),
        (b'b', _) => ("bool", None),
        (b'c', _) => ("char", None),
        (b'a', _) => ("signed char", None),
        (b'h', _) => ("unsigned char", None),
        (b's', _) => ("short", None),
        (b't', _) => ("unsigned short", None),
        (b'i', _) => ("int", Some("")),
        (b'j', _) => ("unsigned int", Some("u")),
        (b'l', _) => ("long", Some("l")),
        (b'm', _) => ("unsigned long", Some("ul")),
        (b'x', _) => ("long long", Some("ll")),
        (b'y', _) => ("unsigned long long", Some("ull")),
        (b'n', _) => ("__int128", None),
        (b'o', _) => ("unsigned __int128", None),
        (b'f', _) => ("float", None),
        (b'd', _) => ("double", None),
        (b'e', _) => ("long double", None),
        (b'g', _) => ("__float128", None),
        (b'z', _) => ("...", None),
        (b'D', b'd') => ("decimal64", None),
        (b'D', b'e') => ("decimal128", None),
        (b'D', b'f') => ("decimal32", None),
        (b'D', b'h') => ("half", None),
        (b'D', b'i') => ("char32_t", None),
        (b'D', b's') => ("char16_t", None),
        (b'D', b'u') => ("char8_t", None),
        (b'D', b'a') => ("auto", None),
        (b'D', b'c') => ("decltype(auto)", None),
        (b'D', b'n') => ("decltype(nullptr)", None),
        _ => return None,
    };
    let len = if first == b'D' { 2 } else { 1 };
    Some((len, Node::Builtin(name, suffix)))
}
