//! The place in a request for the facts about the servers that it was passed to. Their type is the proxying features' own;
//! its memory stays with the request from one use to the next.

use std::any::Any;

/// Facts about the servers of one request.
pub trait UpstreamFacts: Any {
    /// Makes them as new, keeping their memory.
    fn reset(&mut self);
}

/// See the module's documentation. One type is kept at a time.
#[derive(Default)]
pub struct UpstreamSlot {
    facts: Option<Box<dyn UpstreamFacts>>,
    /// The facts are this request's; otherwise they are spare memory.
    is_set: bool,
}

impl UpstreamSlot {
    #[inline]
    pub fn get<T: UpstreamFacts>(&self) -> Option<&T> {
        let facts: &dyn Any = self.facts.as_deref().filter(|_| self.is_set)?;
        facts.downcast_ref()
    }
    #[inline]
    pub fn get_mut<T: UpstreamFacts>(&mut self) -> Option<&mut T> {
        let facts: &mut dyn Any = self.facts.as_deref_mut().filter(|_| self.is_set)?;
        facts.downcast_mut()
    }
    /// The facts, made when first asked for; `true`: just now.
    pub fn get_or_begin<T: UpstreamFacts + Default>(&mut self) -> Option<(&mut T, bool)> {
        let begins = !std::mem::replace(&mut self.is_set, true);
        let fits = self.facts.as_deref().is_some_and(|facts| (facts as &dyn Any).is::<T>());
        if !fits {
            self.facts = Some(Box::new(T::default()));
        }
        self.get_mut().map(|facts| (facts, begins))
    }
    pub fn set<T: UpstreamFacts>(&mut self, facts: T) {
        self.facts = Some(Box::new(facts));
        self.is_set = true;
    }
    #[inline]
    pub fn reset(&mut self) {
        if std::mem::take(&mut self.is_set)
            && let Some(facts) = &mut self.facts
        {
            facts.reset();
        }
    }
}
