//! `mp4_limit_rate`: the rate of a response follows from the average bit rate of its film.

use crate::shared::film::boxes::{self, BoxHead, Wrong};
use crate::shared::film::{BOXES_MAX, Clock, Film, parse_milliseconds};
use conf_schema::{Cx, Directive, Problem, ValueKind};

/// Thousandths of the film's bit rate; 0: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor(u64);

impl Factor {
    /// `on`
    const USUAL: Factor = Factor(1100);
}

impl ValueKind for Factor {
    const SYNTAX: &'static str = "on | off | factor";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|word| word.bytes.as_slice()).unwrap_or_default();
        match word {
            b"on" => Ok(Factor::USUAL),
            b"off" => Ok(Factor(0)),
            number => match parse_milliseconds(number) {
                Some(thousandths @ 1..) => Ok(Factor(thousandths)),
                _ => Err(Problem::says(format!("invalid factor \"{}\"", word.escape_ascii()))
                    .at(0)
                    .hint("a positive number, as 1.1")),
            },
        }
    }
}

/// Limit of a location.
#[derive(Clone, Copy)]
pub struct LocationLimit {
    pub factor: Factor,
    /// Milliseconds of the film that are sent without a limit.
    pub after: u64,
}

/// Limit of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub bytes_per_second: u64,
    /// Bytes that are sent without a limit.
    pub after: u64,
}

impl LocationLimit {
    pub fn is_set(&self) -> bool {
        self.factor.0 > 0
    }
    /// Returns the limit for a film; `None` without a duration. Fails with the file's fault.
    pub fn of(&self, film: &Film) -> Result<Option<Rate>, Wrong> {
        let Some(duration) = milliseconds_of(film)?.filter(|ms| *ms > 0) else { return Ok(None) };
        let (size, duration) = (u128::from(film.size), u128::from(duration));
        let cut = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok(Some(Rate {
            bytes_per_second: cut(size * u128::from(self.factor.0) / duration).max(1),
            after: cut(size * u128::from(self.after) / duration),
        }))
    }
}

/// Returns the duration in the film's `mvhd` box.
fn milliseconds_of(film: &Film) -> Result<Option<u64>, Wrong> {
    let name = film.name.as_str();
    let (mut at, mut end) = (0, film.size);
    for _ in 0..BOXES_MAX {
        if at >= end {
            break;
        }
        let left = end - at;
        let Some(BoxHead { name: kind, head, data }) = boxes::parse_head(&film.read(at, left.min(16))?, left, name)?
        else {
            break;
        };
        match &kind {
            // Its first box follows.
            b"moov" => (at, end) = (at + head, at + head + data),
            b"mvhd" => {
                let clock = Clock::read(&film.read(at + head, data.min(112))?, b"mvhd", name)?;
                let ms = u128::from(clock.duration) * 1000 / u128::from(clock.scale.max(1));
                return Ok(u64::try_from(ms).ok());
            }
            _ => at += head + data,
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::film;
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn factors_scale_the_rate() {
        let parse =
            |text: &str| Factor::parse(&mut Cx::default(), &synthetic_directive("mp4_limit_rate", text)).map(|f| f.0);
        for (text, wanted) in [("on", 1100), ("off", 0), ("2", 2000), ("1.25", 1250), ("0.5", 500)] {
            assert_eq!(parse(text).expect(text), wanted);
        }
        assert!(["0", "-1", "fast", "1.1.1", ""].iter().all(|text| parse(text).is_err()));
    }

    #[test]
    fn limits_follow_from_size_and_duration() {
        let limit = |film: &Film, factor, after| LocationLimit { factor: Factor(factor), after }.of(film);
        for first in [true, false] {
            let bytes = film(first, false);
            let size = bytes.len() as u64;
            let film = Film { name: "f".into(), size, content: Some(bytes.into()), file: None };
            // Ten seconds.
            let rate = limit(&film, 2000, 5000).expect("a film").expect("a duration");
            assert_eq!(rate, Rate { bytes_per_second: size / 5, after: size / 2 });
        }
        let empty = Film { name: "f".into(), size: 0, content: Some(bytes::Bytes::new()), file: None };
        assert_eq!(limit(&empty, 1100, 0), Ok(None));
    }
}
