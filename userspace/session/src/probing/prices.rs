//! What hits of probes cost on this machine.

use gputrace_capture::meta::ProbePrices;
use gputrace_export::costs;
use gputrace_loader::{calls::Calls, hits::HitCosts, probes::Probes};

/// Measures the prices of probes; where that fails, assumes them. Returns the probes that were used
/// as well, to be removed.
pub(crate) fn measure(calls: &Calls) -> (ProbePrices, Vec<Probes>) {
    let (costs, probes) = match calls.price() {
        Ok(measured) => measured,
        Err(error) => {
            tracing::debug!("{error}; costs are estimates of other machines");
            return (*costs::ASSUMED, Vec::new());
        }
    };
    let HitCosts {
        optimized,
        emulated,
        single_stepped,
        at_return,
        at_exit,
    } = costs;
    let prices = ProbePrices {
        measured: true,
        optimized,
        emulated,
        single_stepped,
        at_return,
        at_exit,
    };
    tracing::debug!("prices of probes: {prices:?}");
    (prices, vec![probes])
}
