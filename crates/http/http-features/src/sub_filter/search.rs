//! Finds the first of several texts, case-insensitively; at equal positions the first written. Counts comparisons, because
//! every octet of a body may begin a long text.

use std::ops::Range;

#[derive(Debug)]
pub struct Needles {
    /// Texts in lower case, sorted, so that texts with a common beginning are neighbours; with their indexes.
    sorted: Box<[(Box<[u8]>, usize)]>,
    /// Texts by first byte, in either case: ranges of `sorted`.
    starts: Box<[(u16, u16); 256]>,
    /// The only first byte, in both cases.
    only: Option<(u8, u8)>,
    /// Offset and value of the last byte of a single text: places without this byte need no comparison.
    tail: Option<(usize, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubstitutionMatch {
    /// No text begins before it.
    pub start: usize,
    pub length: usize,
    /// `None`: an incomplete text may begin at `start`, or nothing was found.
    pub index: Option<usize>,
}

impl Needles {
    /// Texts must not be empty.
    pub fn new(texts: Vec<Vec<u8>>) -> Needles {
        let lower = texts.iter().map(|text| text.to_ascii_lowercase().into_boxed_slice());
        let mut sorted: Box<[(Box<[u8]>, usize)]> = lower.enumerate().map(|(index, text)| (text, index)).collect();
        sorted.sort();
        let first = |(text, _): &(Box<[u8]>, usize)| text.first().copied().unwrap_or_default();
        let mut starts = Box::new([(0, 0); 256]);
        for (at, text) in sorted.iter().enumerate() {
            let at = at as u16;
            for c in [first(text), first(text).to_ascii_uppercase()] {
                if let Some(range) = starts.get_mut(usize::from(c)) {
                    *range = if range.0 == range.1 { (at, at + 1) } else { (range.0.min(at), range.1.max(at + 1)) };
                }
            }
        }
        let only = match (sorted.first(), sorted.last()) {
            (Some(one), Some(last)) if first(one) == first(last) => Some((first(one), first(one).to_ascii_uppercase())),
            _ => None,
        };
        let tail = match &*sorted {
            [(text, _)] => text.last().map(|last| (text.len() - 1, *last)),
            _ => None,
        };
        Needles { sorted, starts, only, tail }
    }
    /// First wanted text that begins at `from` or later. `last`: nothing follows, so an incomplete text does not count.
    /// Subtracts its comparisons from `work`; fails with the place to continue from when none are left.
    pub fn find(
        &self,
        bytes: &[u8],
        from: usize,
        wanted: impl Fn(usize) -> bool,
        last: bool,
        work: &mut usize,
    ) -> Result<SubstitutionMatch, usize> {
        let mut at = from;
        while at < bytes.len() {
            if let Some((lower, upper)) = self.only {
                match memchr::memchr2(lower, upper, bytes.get(at..).unwrap_or_default()) {
                    Some(n) => at += n,
                    None => break,
                }
            }
            let left = bytes.get(at..).unwrap_or_default();
            if let Some((offset, byte)) = self.tail
                && left.get(offset).is_some_and(|c| c.to_ascii_lowercase() != byte)
            {
                at += 1;
                continue;
            }
            if *work == 0 {
                return Err(at);
            }
            if let Some((length, index)) = self.begins(left, &wanted, last, work) {
                return Ok(SubstitutionMatch { start: at, length, index });
            }
            at += 1;
        }
        Ok(SubstitutionMatch { start: bytes.len(), length: 0, index: None })
    }
    /// Length and index of the first written text that the bytes begin with; without index if it is incomplete.
    /// Compares each byte once, however many texts begin alike.
    fn begins(
        &self,
        bytes: &[u8],
        wanted: &impl Fn(usize) -> bool,
        last: bool,
        work: &mut usize,
    ) -> Option<(usize, Option<usize>)> {
        let (from, to) = self.starts.get(usize::from(*bytes.first()?)).copied()?;
        let mut texts = self.sorted.get(usize::from(from)..usize::from(to))?;
        let mut best: Option<(usize, usize)> = None;
        let mut depth = 1;
        loop {
            *work = work.saturating_sub(1);
            // Texts that end here are first: they are beginnings of the others.
            while let Some(((text, index), longer)) = texts.split_first()
                && text.len() == depth
            {
                *work = work.saturating_sub(1);
                if wanted(*index) && best.is_none_or(|(_, best)| *index < best) {
                    best = Some((depth, *index));
                }
                texts = longer;
            }
            if texts.is_empty() {
                break;
            }
            let Some(c) = bytes.get(depth) else {
                let incomplete = texts.iter().map(|(_, index)| *index).filter(|index| wanted(*index)).min();
                match incomplete {
                    Some(index) if !last && best.is_none_or(|(_, best)| index < best) => return Some((depth, None)),
                    _ => break,
                }
            };
            texts = texts.get(alike(texts, depth, c.to_ascii_lowercase()))?;
            depth += 1;
        }
        best.map(|(length, index)| (length, Some(index)))
    }
}

/// Texts with this byte at `depth`, of sorted texts that are equal before it.
fn alike(texts: &[(Box<[u8]>, usize)], depth: usize, c: u8) -> Range<usize> {
    let byte = |(text, _): &(Box<[u8]>, usize)| text.get(depth).copied();
    match texts {
        [first, .., last] if byte(first) != byte(last) => {
            texts.partition_point(|text| byte(text) < Some(c))..texts.partition_point(|text| byte(text) <= Some(c))
        }
        // Usual: all texts go on alike.
        [first, ..] if byte(first) == Some(c) => 0..texts.len(),
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(texts: &[&str], bytes: &str, last: bool) -> (usize, Option<usize>) {
        let needles = Needles::new(texts.iter().map(|t| t.as_bytes().to_vec()).collect());
        // Interrupted after each place, and not at all.
        let mut from = 0;
        let found = loop {
            match needles.find(bytes.as_bytes(), from, |_| true, last, &mut 1) {
                Ok(found) => break found,
                Err(at) => {
                    assert!(at > from, "each step makes progress");
                    from = at;
                }
            }
        };
        assert_eq!(needles.find(bytes.as_bytes(), 0, |_| true, last, &mut { usize::MAX }), Ok(found));
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
    fn comparisons_are_counted() {
        let body = vec![b'a'; 32 * 1024];
        let find = |texts: &[Vec<u8>], mut work: usize| {
            (Needles::new(texts.to_vec()).find(&body, 0, |_| true, true, &mut work), work)
        };
        let nothing = SubstitutionMatch { start: body.len(), length: 0, index: None };
        // A body that begins a text everywhere costs the text's length at each place.
        let long = [vec![b'a'; 150], b"b".to_vec(), vec![b'a'; 150]].concat();
        assert_eq!(find(std::slice::from_ref(&long), 15_000), (Err(100), 0));
        assert_eq!(find(&[long, b"ac".to_vec()], 15_000), (Err(100), 0));
        // The last byte of a single text is compared first.
        let ends = [vec![b'a'; 300], b"b".to_vec()].concat();
        let (found, work) = find(&[ends], 50_000);
        assert_eq!(found, Ok(nothing));
        assert!(work > 0);
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
        let mut seed = testkit::Random::new(0x2545_f491_4f6c_dd1d);
        let mut random = move |below: usize| seed.below(below);
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
    fn texts_that_begin_alike_are_compared_together() {
        let texts = (0..200).map(|n| [&[b'a'; 40][..], n.to_string().as_bytes()].concat()).collect();
        let needles = Needles::new(texts);
        let asked = std::cell::Cell::new(0);
        let count = |_: usize| {
            asked.set(asked.get() + 1);
            true
        };
        let hay = [b'a'; 10_000];
        let found = needles.find(&hay, 0, count, false, &mut { usize::MAX }).expect("searched");
        assert_eq!((found.start, found.index), (hay.len() - 40, None), "an incomplete text waits");
        assert_eq!(asked.get(), 200, "only the texts at the end are looked at one by one");
        let hay = [&hay[..], b"17"].concat();
        let found = needles.find(&hay, 0, count, true, &mut { usize::MAX }).expect("searched");
        assert_eq!(found.index, Some(1), "the first written");
    }

    #[test]
    fn unwanted_matches_are_passed_over() {
        let needles = Needles::new(vec![b"a".to_vec(), b"ab".to_vec()]);
        let found = needles.find(b"xab", 0, |index| index == 1, true, &mut { usize::MAX }).expect("searched");
        assert_eq!((found.start, found.length, found.index), (1, 2, Some(1)));
    }
}
