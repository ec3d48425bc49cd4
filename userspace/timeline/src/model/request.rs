//! What a call has that is a request to the driver.

use std::borrow::Cow;

use crate::model::value::ArgValue;

/// What a call has that is a request to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Second argument of `ioctl(2)`.
    pub request: u32,
    /// The fields of its structure, in its order.
    pub arguments: Vec<Field>,
}

/// A field of a request's structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the header, with an index for an element of an array; with `.out` behind it where the driver
    /// replaces what the process has put there.
    pub name: Cow<'static, str>,
    /// Its value.
    pub value: ArgValue<'static>,
}

impl Request {
    /// Number of the request: what the driver goes by.
    #[must_use]
    pub fn nr(&self) -> u8 {
        self.request as u8
    }

    /// A field by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<ArgValue<'static>> {
        let field = self.arguments.iter().find(|field| field.name == name)?;
        Some(field.value)
    }
}
