//! Sets of bytes.

/// A set of bytes, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    pub fn of(bytes: &[u8]) -> ByteSet {
        let mut set = ByteSet::default();
        bytes.iter().for_each(|byte| set.add(*byte));
        set
    }
    /// All bytes from `first` to `last`, both included.
    pub fn range(first: u8, last: u8) -> ByteSet {
        let mut set = ByteSet::default();
        (first..=last).for_each(|byte| set.add(byte));
        set
    }
    pub fn add(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }
    pub fn has(self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|word| word & (1 << (byte & 63)) != 0)
    }
    pub fn joined(self, other: ByteSet) -> ByteSet {
        let mut set = self;
        set.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
        set
    }
    pub fn complement(self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }
    /// The set with both cases of its letters.
    pub fn without_case(self) -> ByteSet {
        let mut set = self;
        self.bytes().for_each(|byte| {
            set.add(byte.to_ascii_lowercase());
            set.add(byte.to_ascii_uppercase());
        });
        set
    }
    pub fn bytes(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |byte| self.has(*byte))
    }
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }
    /// Returns whether all bytes of `other` are in this set.
    pub fn includes(self, other: ByteSet) -> bool {
        self.0.iter().zip(other.0).all(|(word, more)| more & !word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_join_and_forget_case() {
        let set = ByteSet::of(b"aZ1").without_case();
        assert_eq!(set.bytes().collect::<Vec<_>>(), b"1AZaz");
        assert!(ByteSet::range(0, 127).complement().has(200) && !ByteSet::range(0, 127).has(128));
        assert!(set.includes(ByteSet::of(b"A1")) && !set.includes(ByteSet::of(b"b")));
        assert!(ByteSet::default().is_empty() && !set.joined(ByteSet::default()).is_empty());
    }
}
