//! A function's signature, and the places where a probe finds its arguments.

use gputrace_abi::{REGISTER_ARGS, STACK_ARGS};
use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};

use crate::class::{Class, Eightbyte};
use crate::flags::values_of;
use crate::release::Releases;
use crate::structs::recorded;

/// Number of vector registers that carry arguments: xmm0 to xmm7.
const VECTOR_ARGS: usize = 8;

/// A type as the header spells it, and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CType<'a> {
    /// Spelling in the header, e.g. `const void *`.
    pub spelling: &'a str,
    /// How it is passed and shown.
    pub class: Class,
    /// For a pointer: class of the value that the function stores through it, if that is a single
    /// value (or, for [`Class::CString`], text).
    pub stored: Option<Class>,
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Name in the header, or `argN` (from 0) if the header has none.
    pub name: &'a str,
    /// Its type.
    pub c_type: CType<'a>,
}

/// A function as a public header declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature<'a> {
    /// Name, without C++ mangling.
    pub name: &'a str,
    /// Releases whose headers contain this declaration.
    pub releases: Releases,
    /// Return type.
    pub returns: CType<'a>,
    /// Parameters in order.
    pub arguments: Vec<Argument<'a>>,
}

impl Signature<'_> {
    /// The parameters as a capture stores them, each with the place of its first word in the
    /// record.
    ///
    /// Places follow the System V x86-64 ABI. Three kinds of values are not recorded: values in
    /// vector registers, values beyond the [`STACK_ARGS`] stack words in a record, and two-word
    /// values of which only the first word would be recorded.
    ///
    /// ```
    /// use gputrace_capture::meta::ArgSlot;
    /// let signature = gputrace_catalog::signature("hipLaunchKernel").expect("in the catalogue");
    /// let stream = signature.parameters().pop().expect("six parameters");
    /// assert_eq!((stream.name.as_str(), stream.at), ("stream", ArgSlot::Stack(1)));
    /// ```
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        self.parameters_in(None)
    }

    /// Like [`Self::parameters`], for a library of this major release of HIP, if known: some
    /// structures differ between releases.
    #[must_use]
    pub fn parameters_in(&self, hip: Option<u16>) -> Vec<Parameter> {
        let mut layout = Layout::of(self.returns.class);
        let place = |argument: &Argument<'_>| Parameter {
            name: argument.name.to_owned(),
            c_type: argument.c_type.spelling.to_owned(),
            kind: argument.c_type.class.kind(),
            at: layout.place(argument.c_type.class),
            stored: argument.c_type.stored.map(|class| match class {
                Class::Float(bytes) => ValueKind::Real(bytes),
                class => class.kind(),
            }),
            values: values_of(self.name, argument.name)
                .unwrap_or_default()
                .to_owned(),
            fields: match argument.c_type.class {
                Class::Pointer | Class::Memory(_) => recorded(self.name, argument, hip),
                _ => Vec::new(),
            },
        };
        self.arguments.iter().map(place).collect()
    }

    /// Number of 8-byte stack words above the return address that a probe must copy to have all
    /// recordable arguments: 0 to [`STACK_ARGS`].
    #[must_use]
    pub fn stack_words(&self) -> u8 {
        let mut layout = Layout::of(self.returns.class);
        for argument in &self.arguments {
            layout.place(argument.c_type.class);
        }
        layout.stack.min(STACK_ARGS) as u8
    }

    /// Kind of the value in the return register, rax, when the function returns.
    ///
    /// For a struct returned in memory, it is the struct's address. A floating-point result is in a
    /// vector register instead, and rax has no meaning.
    #[must_use]
    pub fn return_kind(&self) -> ValueKind {
        if self.returns_in_memory() {
            return ValueKind::Pointer;
        }
        match self.returns.class {
            // Two eightbytes are returned in rax:rdx, of which a record has only rax.
            Class::Dim3 => ValueKind::Word,
            class => class.kind(),
        }
    }

    /// Whether the caller passes a hidden pointer to the result's destination. It takes the first
    /// argument register, so every parameter moves to the next register.
    #[must_use]
    pub fn returns_in_memory(&self) -> bool {
        self.returns.class.eightbytes().is_none()
    }
}

/// Registers and stack words that the arguments so far have taken.
struct Layout {
    integers: usize,
    vectors: usize,
    stack: usize,
}

impl Layout {
    fn of(returns: Class) -> Self {
        let hidden_pointer = usize::from(returns.eightbytes().is_none());
        Self {
            integers: hidden_pointer,
            vectors: 0,
            stack: 0,
        }
    }

    /// Assigns the place of the next argument. A value is in registers completely or not at all; a
    /// later argument may use a register that it left free.
    fn place(&mut self, class: Class) -> ArgSlot {
        let words = class.stack_words();
        if let Some(eightbytes) = class.eightbytes() {
            let integers = eightbytes
                .iter()
                .filter(|part| **part == Eightbyte::Integer)
                .count();
            let vectors = eightbytes.len() - integers;
            if self.integers + integers <= REGISTER_ARGS && self.vectors + vectors <= VECTOR_ARGS {
                let register = self.integers;
                self.integers += integers;
                self.vectors += vectors;
                return match eightbytes {
                    [Eightbyte::Integer, ..] => ArgSlot::Register(register as u8),
                    _ => ArgSlot::Unrecorded,
                };
            }
        }
        let first = self.stack;
        self.stack += words;
        // Only the first word of a struct in memory is shown; other values are shown completely or
        // not at all.
        let needed = if class.eightbytes().is_some() {
            words
        } else {
            1
        };
        if first + needed <= STACK_ARGS {
            ArgSlot::Stack(first as u8)
        } else {
            ArgSlot::Unrecorded
        }
    }
}
