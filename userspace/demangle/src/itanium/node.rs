//! The parts of a name.

use super::operators::Operator;

/// A part, by its place in the [`Tree`].
pub(super) type Id = u32;

/// A function whose template parameters have a meaning of their own, by its place in the [`Tree`].
pub(super) type Scope = u32;

/// Consecutive entries of [`Tree::lists`].
#[derive(Clone, Copy, Default)]
pub(super) struct List {
    begin: u32,
    len: u32,
}

impl List {
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

/// What follows a type or the parameters of a function.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Qualifiers {
    pub(super) is_const: bool,
    pub(super) is_volatile: bool,
    pub(super) is_restrict: bool,
    /// `&` or `&&` of a member function.
    pub(super) reference: Option<Reference>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    Left,
    Right,
}

/// What a function type says of exceptions.
#[derive(Clone, Copy)]
pub(super) enum Exceptions {
    Unsaid,
    Noexcept,
    NoexceptIf(Id),
    Throw(List),
}

#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    // Names
    /// An identifier, as the source has it.
    Name(&'a str),
    /// A name with scope that has an abbreviation, e.g. `std::string`.
    Known(&'static str),
    /// A type of the language, by its name; how literals of it end, if they are plain numbers.
    Builtin(&'static str, Option<&'static str>),
    Nested(Id, Id),
    Local(Id, Id),
    DefaultArgument(u64, Id),
    Tagged(Id, &'a str),
    Instance(Id, List),
    /// Of the class with this name.
    Constructor(Id),
    Destructor(Id),
    Operator(&'static Operator),
    VendorOperator(&'a str),
    Conversion(Id),
    LiteralOperator(&'a str),
    Closure {
        declared: List,
        parameters: List,
        number: u64,
    },
    Unnamed(u64),
    Bindings(List),
    Function {
        name: Id,
        result: Option<Id>,
        parameters: List,
        qualifiers: Qualifiers,
        /// Whether the first parameter is the object.
        explicit_object: bool,
        requires: Option<Id>,
    },
    /// What the compiler makes for something, e.g. `vtable for `.
    Special(&'static str, Id),
    Construction(Id, Id),
    Temporary(u64, Id),

    // Types
    Pointer(Id),
    Reference(Reference, Id),
    Complex(&'static str, Id),
    Qualified(Id, Qualifiers),
    VendorQualified(Id, &'a str, Option<List>),
    FunctionType {
        result: Id,
        parameters: List,
        qualifiers: Qualifiers,
        exceptions: Exceptions,
    },
    Array(Option<Id>, Id),
    Vector(Id, Id),
    MemberPointer(Id, Id),
    Elaborated(&'static str, Id),
    Decltype(Id),
    Constrained(Id, &'static str),
    BitInt(&'static str, Id),
    FloatOf(&'a str),
    /// A template parameter, counted from zero, and what it stands for where it was read. In the
    /// signature of a lambda it is that lambda's, and stands for `auto`.
    Parameter(usize, Option<Id>),
    /// An earlier part that another function's name refers to: template parameters in it are that
    /// function's.
    Elsewhere(Id, Scope),
    /// Several arguments in the place of one, as an argument.
    Arguments(List),
    /// The same, as what a parameter stands for.
    Pack(List),
    Expansion(Id),

    // Declarations of template parameters
    DeclaredType(Id),
    DeclaredValue(Id, Id),
    DeclaredTemplate(List, Id),
    DeclaredPack(Id),
    DeclaredConstrained(Id, Id),
    /// A name for a template parameter that has none: `$T0`.
    Invented(&'static str, u64),

    // Expressions
    Literal(Id, &'a str),
    StringLiteral(Id),
    Prefix(&'static Operator, Id),
    Postfix(&'static Operator, Id),
    Binary(&'static Operator, Id, Id),
    Subscript(Id, Id),
    Call(Id, List),
    Conditional(Id, Id, Id),
    NamedCast(&'static Operator, Id, Id),
    Cast(Id, Id),
    CastOfMany(Id, List),
    Braced(Option<Id>, List),
    New {
        operator: &'static Operator,
        placement: List,
        of: Id,
        arguments: Option<List>,
    },
    Global(Id),
    /// An operator and its operand in brackets, e.g. `sizeof (int)`.
    Bracketed(&'static Operator, Id),
    SizeOfPack(Id),
    SizeOfArguments(List),
    /// A parameter of the function, counted from one.
    FunctionParameter(u64),
    This,
    Throw,
    /// Operator, whether the pack is on the right, the pack, and the other operand.
    Fold(&'static Operator, bool, Id, Option<Id>),
    Designated(Id, Id, bool),
    DesignatedRange(Id, Id, Id),
    Subobject(Id, Id, &'a str),
    VendorCall(&'a str, List),
    Requires(List, List),
    RequiresExpression(Id, bool, Option<Id>),
    RequiresType(Id),
    RequiresNested(Id),
}

/// All parts of a name. They refer to one another by [`Id`].
#[derive(Default)]
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    lists: Vec<Id>,
    /// What the template parameters of each function stand for.
    scopes: Vec<Vec<Id>>,
}

impl<'a> Tree<'a> {
    pub(super) fn add(&mut self, node: Node<'a>) -> Option<Id> {
        let id = Id::try_from(self.nodes.len()).ok()?;
        self.nodes.push(node);
        Some(id)
    }

    pub(super) fn list(&mut self, entries: &[Id]) -> Option<List> {
        let begin = u32::try_from(self.lists.len()).ok()?;
        let len = u32::try_from(entries.len()).ok()?;
        self.lists.extend_from_slice(entries);
        Some(List { begin, len })
    }

    pub(super) fn add_scope(&mut self) -> Option<Scope> {
        let scope = Scope::try_from(self.scopes.len()).ok()?;
        self.scopes.push(Vec::new());
        Some(scope)
    }

    pub(super) fn set_scope(&mut self, scope: Scope, parameters: Vec<Id>) {
        if let Some(place) = self.scopes.get_mut(scope as usize) {
            *place = parameters;
        }
    }

    /// What a template parameter stands for in `scope`.
    pub(super) fn argument(&self, scope: Scope, number: usize) -> Option<Id> {
        self.scopes.get(scope as usize)?.get(number).copied()
    }

    pub(super) fn get(&self, id: Id) -> Option<Node<'a>> {
        self.nodes.get(id as usize).copied()
    }

    pub(super) fn set(&mut self, id: Id, node: Node<'a>) {
        if let Some(place) = self.nodes.get_mut(id as usize) {
            *place = node;
        }
    }

    pub(super) fn entries(&self, list: List) -> &[Id] {
        let begin = list.begin as usize;
        self.lists
            .get(begin..begin + list.len as usize)
            .unwrap_or_default()
    }
}
