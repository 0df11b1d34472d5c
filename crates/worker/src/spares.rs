//! Recycled objects of a thread, by type.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::rc::Rc;

/// Maximum number of spare objects per type.
const SPARE_MAX: usize = 64;

/// Spare objects, by their type.
#[derive(Default)]
pub struct Spares(RefCell<Vec<(TypeId, Vec<Rc<dyn Any>>)>>);

impl Spares {
    /// Takes a spare object. It has the content of its last use.
    pub fn take<T: 'static>(&self) -> Option<Rc<T>> {
        let mut pools = self.0.borrow_mut();
        let (_, pool) = pools.iter_mut().find(|(id, _)| *id == TypeId::of::<T>())?;
        pool.pop()?.downcast().ok()
    }
    /// Up to the limit.
    pub fn put<T: 'static>(&self, object: Rc<T>) {
        let mut pools = self.0.borrow_mut();
        match pools.iter_mut().find(|(id, _)| *id == TypeId::of::<T>()) {
            Some((_, pool)) if pool.len() < SPARE_MAX => pool.push(object),
            Some(_) => {}
            None => pools.push((TypeId::of::<T>(), vec![object])),
        }
    }
    /// Drops all objects: some refer to the thread's state.
    pub fn clear(&self) {
        let pools = self.0.take();
        drop(pools);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_by_their_type() {
        let spares = Spares::default();
        assert!(spares.take::<u8>().is_none());
        spares.put(Rc::new(1_u8));
        spares.put(Rc::new("text"));
        assert_eq!(spares.take::<u8>().as_deref(), Some(&1));
        assert!(spares.take::<u8>().is_none());
        assert_eq!(spares.take::<&str>().as_deref(), Some(&"text"));
        (0..SPARE_MAX + 9).for_each(|n| spares.put(Rc::new(n)));
        assert_eq!(std::iter::from_fn(|| spares.take::<usize>()).count(), SPARE_MAX);
        spares.put(Rc::new(1_u8));
        spares.clear();
        assert!(spares.take::<u8>().is_none());
    }
}
