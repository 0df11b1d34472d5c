//! Finds the first of several texts, case-insensitively; at equal positions the first written.

#[derive(Debug)]
pub struct Needles {
    texts: Box<[Box<[u8]>]>,
    /// Texts by first byte, in either case: ranges of `order`.
    starts: Box<[(u16, u16); 256]>,
    order: Box<[u16]>,
    /// The only first byte, in both cases.
    only: Option<(u8, u8)>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct SubstitutionMatch {
    /// Bytes before it contain nothing.
    pub start: usize,
    pub length: usize,
    /// `None`: an incomplete text may begin at `start`, or nothing was found.
    pub index: Option<usize>,
}

impl Needles {
    /// Texts must not be empty.
    pub fn new(texts: Vec<Vec<u8>>) -> Needles {
        let texts: Box<[Box<[u8]>]> = texts.iter().map(|text| text.to_ascii_lowercase().into()).collect();
        let mut order: Vec<u16> = (0..texts.len() as u16).collect();
        let first =
            |index: &u16| texts.get(usize::from(*index)).and_then(|text| text.first()).copied().unwrap_or_default();
        order.sort_by_key(first);
        let mut starts = Box::new([(0, 0); 256]);
        for (at, index) in order.iter().enumerate() {
            let at = at as u16;
            for c in [first(index), first(index).to_ascii_uppercase()] {
                if let Some(range) = starts.get_mut(usize::from(c)) {
                    *range = if range.0 == range.1 { (at, at + 1) } else { (range.0.min(at), range.1.max(at + 1)) };
                }
            }
        }
        let only = match (order.first(), order.last()) {
            (Some(one), Some(last)) if first(one) == first(last) => Some((first(one), first(one).to_ascii_uppercase())),
            _ => None,
        };
        Needles { texts, starts, order: order.into(), only }
    }
    /// First wanted text. `last`: nothing follows, so an incomplete text does not count.
    pub fn find(&self, bytes: &[u8], wanted: impl Fn(usize) -> bool, last: bool) -> SubstitutionMatch {
        let mut at = 0;
        while at < bytes.len() {
            if let Some((lower, upper)) = self.only {
                match memchr::memchr2(lower, upper, bytes.get(at..).unwrap_or_default()) {
                    Some(n) => at += n,
                    None => break,
                }
            }
            let left = bytes.get(at..).unwrap_or_default();
            let Some(c) = left.first() else { break };
            let (from, to) = self.starts.get(usize::from(*c)).copied().unwrap_or_default();
            for index in self.order.get(usize::from(from)..usize::from(to)).unwrap_or_default() {
                let index = usize::from(*index);
                let Some(text) = self.texts.get(index) else { continue };
                let here = left.get(..text.len()).unwrap_or(left);
                let same = text.get(..here.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(here));
                if (last && here.len() < text.len()) || !same || !wanted(index) {
                    continue;
                }
                let whole = here.len() == text.len();
                return SubstitutionMatch { start: at, length: here.len(), index: whole.then_some(index) };
            }
            at += 1;
        }
        SubstitutionMatch { start: bytes.len(), length: 0, index: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(texts: &[&str], bytes: &str, last: bool) -> (usize, Option<usize>) {
        let needles = Needles::new(texts.iter().map(|t| t.as_bytes().to_vec()).collect());
        let found = needles.find(bytes.as_bytes(), |_| true, last);
        (found.start, found.index)
    }

    #[test]
    fn the_first_place_and_there_the_first_text() {
        assert_eq!(find(&["b", "ab"], "xxABx", true), (2, Some(1)));
        assert_eq!(find(&["a", "ab"], "xab", true), (1, Some(0)));
        assert_eq!(find(&["ab", "a"], "xab", true), (1, Some(0)));
        assert_eq!(find(&["no"], "nnnope", true), (2, Some(0)));
        assert_eq!(find(&["1-2"], "11-2", true), (1, Some(0)));
        assert_eq!(find(&["x"], "abc", true), (3, None));
    }

    #[test]
    fn a_beginning_at_the_end_waits() {
        assert_eq!(find(&["abcd"], "xxab", false), (2, None));
        assert_eq!(find(&["abcd"], "xxab", true), (4, None));
        assert_eq!(find(&["abcd", "ab"], "xxab", false), (2, None));
        assert_eq!(find(&["ab", "abcd"], "xxab", false), (2, Some(0)));
        assert_eq!(find(&["abcd"], "xxac", false), (4, None));
    }

    #[test]
    fn random_texts_are_found_where_a_plain_search_finds_them() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        for _ in 0..5000 {
            let mut word = |least: usize, most: usize| -> String {
                (0..least + random(most)).map(|_| ["a", "B", "c"][random(3)]).collect()
            };
            let texts: Vec<String> = (0..3).map(|_| word(1, 4)).collect();
            let hay = word(0, 16);
            let lower = hay.to_lowercase();
            let plain = (0..hay.len()).find_map(|at| {
                let index = texts.iter().position(|text| lower[at..].starts_with(&text.to_lowercase()))?;
                Some((at, Some(index)))
            });
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            assert_eq!(find(&texts, &hay, true), plain.unwrap_or((hay.len(), None)), "{texts:?} in {hay}");
            // With less input the result is equal, or waits at an earlier position.
            let cut = hay.len() / 2;
            let (at, index) = find(&texts, &hay[..cut], false);
            match (index, plain) {
                (Some(index), plain) => assert_eq!(Some((at, Some(index))), plain, "{texts:?} in {hay}"),
                (None, Some((place, _))) => assert!(at <= place, "{texts:?} in {hay}"),
                (None, None) => {}
            }
        }
    }

    #[test]
    fn those_that_are_not_wanted_are_passed_over() {
        let needles = Needles::new(vec![b"a".to_vec(), b"ab".to_vec()]);
        let found = needles.find(b"xab", |index| index == 1, true);
        assert_eq!((found.start, found.length, found.index), (1, 2, Some(1)));
    }
}
