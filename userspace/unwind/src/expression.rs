//! Evaluates the expressions of DWARF that some rules consist of.

use gimli::{EhFrame, Encoding, EvaluationResult, Format, Location, UnwindExpression, Value};

use crate::module::Bytes;

/// Maximum number of operations; real expressions have fewer than twenty.
const OPERATIONS: u32 = 200;

/// Where an expression finds values. Both return `None` for what is not known.
pub(crate) trait Values {
    /// The value of the register with this number in DWARF's tables.
    fn register(&mut self, register: gimli::Register) -> Option<u64>;
    /// The eight bytes of memory at an address.
    fn memory(&mut self, address: u64) -> Option<u64>;
}

/// Why an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is damaged, or uses what no compiler uses here.
    Unsupported,
    /// A register or memory is not known.
    Unknown,
}

/// Evaluates an expression that begins with `initial` on its stack, if any.
pub(crate) fn evaluate(
    expression: &UnwindExpression<usize>,
    frames: &EhFrame<Bytes>,
    initial: Option<u64>,
    values: &mut impl Values,
) -> Result<u64, Failure> {
    let encoding = Encoding {
        address_size: 8,
        format: Format::Dwarf32,
        version: 4,
    };
    let unsupported = |_| Failure::Unsupported;
    let expression = expression.get(frames).map_err(unsupported)?;
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_max_iterations(OPERATIONS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut state = evaluation.evaluate().map_err(unsupported)?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = values.register(register).ok_or(Failure::Unknown)?;
                evaluation.resume_with_register(Value::Generic(value))
            }
            EvaluationResult::RequiresMemory {
                address, size: 8, ..
            } => {
                let value = values.memory(address).ok_or(Failure::Unknown)?;
                evaluation.resume_with_memory(Value::Generic(value))
            }
            _ => return Err(Failure::Unsupported),
        }
        .map_err(unsupported)?;
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Ok(address),
            Location::Value {
                value: Value::Generic(value),
            } => Ok(value),
            _ => Err(Failure::Unsupported),
        },
        _ => Err(Failure::Unsupported),
    }
}
