//! A request to the driver, as part of a call.

use std::borrow::Cow;

use crate::model::value::ArgValue;

/// The additional data of a call that is a request to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Second argument of `ioctl(2)`.
    pub request: u32,
    /// The fields of its structure, in the order of the structure.
    pub arguments: Vec<Field>,
}

/// A field of a request's structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the header, with an index for an element of an array, and with the suffix `.out` for
    /// the value with which the driver replaced the process's.
    pub name: Cow<'static, str>,
    /// Its value.
    pub value: ArgValue<'static>,
}

impl Request {
    /// Number of the request, by which the driver identifies it.
    #[must_use]
    pub fn nr(&self) -> u8 {
        self.request as u8
    }

    /// The value of the field called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<ArgValue<'static>> {
        let field = self.arguments.iter().find(|field| field.name == name)?;
        Some(field.value)
    }
}
