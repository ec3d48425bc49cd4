//! The operators and their codes.

/// How an operator stands in an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Prefix,
    /// Before or behind its operand.
    Step,
    Binary,
    Subscript,
    Call,
    Conditional,
    New,
    /// A keyword with an expression in brackets.
    Keyword,
    /// A keyword with a type in brackets.
    OfType,
    NamedCast,
}

pub(super) struct Operator {
    pub(super) code: [u8; 2],
    pub(super) text: &'static str,
    pub(super) form: Form,
    /// Whether functions can have its name.
    pub(super) is_name: bool,
}

const fn of(code: [u8; 2], text: &'static str, form: Form) -> Operator {
    Operator {
        code,
        text,
        form,
        is_name: true,
    }
}

const fn unnamed(code: [u8; 2], text: &'static str, form: Form) -> Operator {
    Operator {
        code,
        text,
        form,
        is_name: false,
    }
}

use Form::{Binary, Call, Conditional, Keyword, NamedCast, New, OfType, Prefix, Step, Subscript};

/// Sorted by code.
static OPERATORS: &[Operator] = &[
    of(*b"aN", "&=", Binary),
    of(*b"aS", "=", Binary),
    of(*b"aa", "&&", Binary),
    of(*b"ad", "&", Prefix),
    of(*b"an", "&", Binary),
    unnamed(*b"at", "alignof ", OfType),
    of(*b"aw", "co_await ", Prefix),
    unnamed(*b"az", "alignof ", Keyword),
    unnamed(*b"cc", "const_cast", NamedCast),
    of(*b"cl", "()", Call),
    of(*b"cm", ",", Binary),
    of(*b"co", "~", Prefix),
    of(*b"dV", "/=", Binary),
    of(*b"da", "delete[] ", Prefix),
    unnamed(*b"dc", "dynamic_cast", NamedCast),
    of(*b"de", "*", Prefix),
    of(*b"dl", "delete ", Prefix),
    unnamed(*b"ds", ".*", Binary),
    unnamed(*b"dt", ".", Binary),
    of(*b"dv", "/", Binary),
    of(*b"eO", "^=", Binary),
    of(*b"eo", "^", Binary),
    of(*b"eq", "==", Binary),
    of(*b"ge", ">=", Binary),
    of(*b"gt", ">", Binary),
    of(*b"ix", "[]", Subscript),
    of(*b"lS", "<<=", Binary),
    of(*b"le", "<=", Binary),
    of(*b"ls", "<<", Binary),
    of(*b"lt", "<", Binary),
    of(*b"mI", "-=", Binary),
    of(*b"mL", "*=", Binary),
    of(*b"mi", "-", Binary),
    of(*b"ml", "*", Binary),
    of(*b"mm", "--", Step),
    of(*b"na", "new[]", New),
    of(*b"ne", "!=", Binary),
    of(*b"ng", "-", Prefix),
    of(*b"nt", "!", Prefix),
    of(*b"nw", "new", New),
    unnamed(*b"nx", "noexcept", Keyword),
    of(*b"oR", "|=", Binary),
    of(*b"oo", "||", Binary),
    of(*b"or", "|", Binary),
    of(*b"pL", "+=", Binary),
    of(*b"pl", "+", Binary),
    of(*b"pm", "->*", Binary),
    of(*b"pp", "++", Step),
    of(*b"ps", "+", Prefix),
    of(*b"pt", "->", Binary),
    of(*b"qu", "?", Conditional),
    of(*b"rM", "%=", Binary),
    of(*b"rS", ">>=", Binary),
    unnamed(*b"rc", "reinterpret_cast", NamedCast),
    of(*b"rm", "%", Binary),
    of(*b"rs", ">>", Binary),
    unnamed(*b"sc", "static_cast", NamedCast),
    of(*b"ss", "<=>", Binary),
    unnamed(*b"st", "sizeof ", OfType),
    unnamed(*b"sz", "sizeof ", Prefix),
    unnamed(*b"te", "typeid ", Keyword),
    unnamed(*b"ti", "typeid ", OfType),
    unnamed(*b"tw", "throw ", Prefix),
];

/// The operator with this code.
pub(super) fn find(code: [u8; 2]) -> Option<&'static Operator> {
    let place = OPERATORS
        .binary_search_by_key(&code, |operator| operator.code)
        .ok()?;
    OPERATORS.get(place)
}
