//! Slot for facts about a request's upstream servers; proxying features define the type, and memory is reused.

use crate::span::TrySpan;
use std::any::Any;

/// Facts that a proxying feature keeps about the request's servers, for variables and log lines.
pub trait UpstreamFacts: Any {
    /// Resets the facts, keeping their buffers.
    fn reset(&mut self);
    /// Returns the ended tries, to become spans.
    fn tries(&self) -> Vec<TrySpan>;
}

/// Facts of one type at a time.
#[derive(Default)]
pub struct UpstreamSlot {
    facts: Option<Box<dyn UpstreamFacts>>,
    /// The facts belong to the current request; otherwise they are spare memory.
    is_set: bool,
}

impl UpstreamSlot {
    /// Returns the current request's facts; `None`: there are none, or they are of another type.
    #[inline]
    pub fn get<T: UpstreamFacts>(&self) -> Option<&T> {
        let facts: &dyn Any = self.facts.as_deref().filter(|_| self.is_set)?;
        facts.downcast_ref()
    }
    /// Returns the current request's facts to be changed; `None` as for [`UpstreamSlot::get`].
    #[inline]
    pub fn get_mut<T: UpstreamFacts>(&mut self) -> Option<&mut T> {
        let facts: &mut dyn Any = self.facts.as_deref_mut().filter(|_| self.is_set)?;
        facts.downcast_mut()
    }
    /// Returns the facts, created on demand; `true`: created now.
    pub fn get_or_begin<T: UpstreamFacts + Default>(&mut self) -> Option<(&mut T, bool)> {
        let begins = !std::mem::replace(&mut self.is_set, true);
        let fits = self.facts.as_deref().is_some_and(|facts| (facts as &dyn Any).is::<T>());
        if !fits {
            self.facts = Some(Box::new(T::default()));
        }
        self.get_mut().map(|facts| (facts, begins))
    }
    /// Replaces the facts.
    pub fn set<T: UpstreamFacts>(&mut self, facts: T) {
        self.facts = Some(Box::new(facts));
        self.is_set = true;
    }
    /// Returns the ended tries of the current request's facts.
    pub fn tries(&self) -> Vec<TrySpan> {
        self.facts.as_deref().filter(|_| self.is_set).map(UpstreamFacts::tries).unwrap_or_default()
    }
    /// Ends the facts of this request, and keeps their memory for the next.
    #[inline]
    pub fn reset(&mut self) {
        if std::mem::take(&mut self.is_set)
            && let Some(facts) = &mut self.facts
        {
            facts.reset();
        }
    }
}
