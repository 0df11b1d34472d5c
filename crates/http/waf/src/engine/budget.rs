//! The budget of a transaction: steps, work and memory.

use crate::clock::WorkClock;

/// Why a budget ended, as the message in the log says.
const EXHAUSTED_STEPS: &str = "steps";
const EXHAUSTED_MICROSECONDS: &str = "time";
const EXHAUSTED_BYTES: &str = "memory";
const EXHAUSTED_NAMES: &str = "names of DNS";

/// Limits of the work for a transaction. When one is reached, the remaining rules are left out, except those of phase
/// 5, which get a tenth of the budget again; [`crate::Services::exhausted`] decides about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that operators see, and 16 for each evaluation of an operator.
    pub steps: u64,
    /// Microseconds of work in the engine over all phases, by [`crate::Services::work`]. The clock is read once in 64
    /// evaluations.
    pub microseconds: u64,
    /// Bytes of transformed values and of variables that rules set.
    pub bytes: u64,
}

impl Default for Budget {
    /// 4 G steps, a second, 64 MB: CRS at its highest level needs some tens of milliseconds for a JSON body of 15 KB.
    fn default() -> Budget {
        Budget { steps: 4 << 30, microseconds: 1_000_000, bytes: 64 << 20 }
    }
}

/// The spent part of a budget.
#[derive(Debug, Default)]
pub(super) struct BudgetUse {
    pub steps: u64,
    pub bytes: u64,
    /// Time of finished phases.
    microseconds: u64,
    phase_started: u64,
    evaluations: u32,
    pub exhausted: Option<&'static str>,
}

impl BudgetUse {
    pub fn begin_phase(&mut self, now: u64) {
        self.phase_started = now;
    }
    pub fn end_phase(&mut self, now: u64) {
        self.microseconds = self.microseconds.saturating_add(now.saturating_sub(self.phase_started));
        self.phase_started = now;
    }
    /// Gives a tenth of the budget for the phase of logging.
    pub fn allow_logging(&mut self, budget: &Budget) {
        if self.exhausted.take().is_some() {
            self.steps = self.steps.min(budget.steps - budget.steps / 10);
            self.bytes = self.bytes.min(budget.bytes - budget.bytes / 10);
            self.microseconds = self.microseconds.min(budget.microseconds - budget.microseconds / 10);
        }
    }
    /// Counts an evaluation of an operator on so many bytes.
    pub fn evaluate(&mut self, bytes: usize, budget: &Budget, clock: &dyn WorkClock) {
        self.steps = self.steps.saturating_add(bytes as u64 + 16);
        self.evaluations = self.evaluations.wrapping_add(1);
        if self.steps > budget.steps {
            self.exhausted = self.exhausted.or(Some(EXHAUSTED_STEPS));
        }
        // A long value takes time in itself.
        if self.evaluations.is_multiple_of(64) || bytes > 100_000 {
            let here = clock.spent().saturating_sub(self.phase_started);
            if self.microseconds.saturating_add(here) > budget.microseconds {
                self.exhausted = self.exhausted.or(Some(EXHAUSTED_MICROSECONDS));
            }
        }
    }
    /// Ends the budget: a rule asks for more than [`crate::NAMES_MAX`] names.
    pub fn exhaust_names(&mut self) {
        self.exhausted = self.exhausted.or(Some(EXHAUSTED_NAMES));
    }
    /// Checks memory that is held for a moment besides the kept one.
    pub fn hold(&mut self, bytes: usize, budget: &Budget) {
        if self.bytes.saturating_add(bytes as u64) > budget.bytes {
            self.exhausted = self.exhausted.or(Some(EXHAUSTED_BYTES));
        }
    }
    /// Counts memory.
    pub fn keep(&mut self, bytes: usize, budget: &Budget) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > budget.bytes {
            self.exhausted = self.exhausted.or(Some(EXHAUSTED_BYTES));
        }
    }
}
