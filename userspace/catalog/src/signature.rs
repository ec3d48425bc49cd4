//! A function's signature, and where a probe finds its arguments.

use gputrace_abi::{REGISTER_ARGS, STACK_ARGS};
use gputrace_capture::meta::{ArgSlot, Parameter, ValueKind};

use crate::class::{Class, Eightbyte};
use crate::flags::values_of;
use crate::release::Releases;
use crate::structs::recorded;

/// Vector registers that carry arguments: xmm0 to xmm7.
const VECTOR_ARGS: usize = 8;

/// A type as the header spells it, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CType<'a> {
    /// As written in the header, e.g. `const void *`.
    pub spelling: &'a str,
    /// How it is passed and shown.
    pub class: Class,
    /// Of a pointer: what the function stores where it points to, if that is a single value (or, for
    /// [`Class::CString`], text).
    pub stored: Option<Class>,
}

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Name in the header, or `argN` (from 0) where the header gives none.
    pub name: &'a str,
    /// Its type.
    pub c_type: CType<'a>,
}

/// A function as a public header declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature<'a> {
    /// Name, without C++ mangling.
    pub name: &'a str,
    /// Releases whose headers declare it like this.
    pub releases: Releases,
    /// Return type.
    pub returns: CType<'a>,
    /// Parameters in order.
    pub arguments: Vec<Argument<'a>>,
}

impl Signature<'_> {
    /// The parameters as a capture stores them, each with the place of its first word in the record.
    ///
    /// Places follow the System V x86-64 ABI. Not recorded are values in vector registers, values
    /// beyond the [`STACK_ARGS`] stack words that a record holds, and two-word values of which only
    /// the first word would be in it.
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

    /// As [`Self::parameters`], for a library of this major release of HIP, if it is known: some structures differ between them.
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

    /// How many 8-byte stack words above the return address a probe must copy to have every argument
    /// that can be recorded: 0 to [`STACK_ARGS`].
    #[must_use]
    pub fn stack_words(&self) -> u8 {
        let mut layout = Layout::of(self.returns.class);
        for argument in &self.arguments {
            layout.place(argument.c_type.class);
        }
        layout.stack.min(STACK_ARGS) as u8
    }

    /// What the return register, rax, holds when the function returns.
    ///
    /// A struct returned in memory leaves its address there. A floating-point result is in a vector
    /// register instead, and rax means nothing.
    #[must_use]
    pub fn return_kind(&self) -> ValueKind {
        if self.returns_in_memory() {
            return ValueKind::Pointer;
        }
        match self.returns.class {
            // Two eightbytes come back in rax:rdx, of which a record has only rax.
            Class::Dim3 => ValueKind::Word,
            class => class.kind(),
        }
    }

    /// Whether the caller passes a hidden pointer to where the result goes. It takes the first
    /// argument register, so every parameter is one register further on.
    #[must_use]
    pub fn returns_in_memory(&self) -> bool {
        self.returns.class.eightbytes().is_none()
    }
}

/// Registers and stack words taken so far by a function's arguments.
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

    /// Takes the place of the next argument. A value goes into registers as a whole or not at all; a
    /// register that it leaves over is used by a later argument.
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
        // Of a struct in memory only the first word is shown; of other values, all of it or nothing.
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
