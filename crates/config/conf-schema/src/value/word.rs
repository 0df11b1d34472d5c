//! Flags, and the macros for enumerations and sets of words.

use super::word_at;
use crate::complaint::Problem;
use crate::cx::Cx;
use crate::table::ValueKind;
use conf_syntax::Directive;

/// `on` or `off`, in any case.
pub type Flag = bool;

impl ValueKind for bool {
    const SYNTAX: &'static str = "on | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<bool, Problem> {
        let word = word_at(d, 0)?.text();
        if word.eq_ignore_ascii_case("on") {
            Ok(true)
        } else if word.eq_ignore_ascii_case("off") {
            Ok(false)
        } else {
            let (name, hint) = (d.name.text(), matches!(&*word.to_ascii_lowercase(), "yes" | "true" | "1"));
            Err(Problem::says(format!(
                "invalid value \"{word}\" in \"{name}\" directive, it must be \"on\" or \"off\""
            ))
            .at(0)
            .hint(if hint { "did you mean \"on\"?" } else { "write \"on\" or \"off\"" }))
        }
    }
}

/// An enumeration of words: `words! { pub enum Satisfy { All = "all", Any = "any" } }`.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* pub enum $Name:ident { $($(#[$doc:meta])* $Variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name { $(#[doc = concat!("`", $word, "`")] $(#[$doc])* $Variant),+ }
        impl $Name {
            /// The words with their values, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, $Name)] = &[$(($word, $Name::$Variant)),+];
        }
        impl $crate::ValueKind for $Name {
            const SYNTAX: &'static str = $crate::words!(@join $($word),+);
            fn parse(_: &mut $crate::Cx, d: &$crate::Directive) -> Result<Self, $crate::Problem> {
                let word = $crate::value::word_at(d, 0)?.text();
                match Self::WORDS.iter().find(|(w, _)| w.eq_ignore_ascii_case(&word)) {
                    Some((_, value)) => Ok(*value),
                    None => {
                        let known: Vec<&str> = Self::WORDS.iter().map(|(w, _)| *w).collect();
                        Err($crate::Problem::says(format!("invalid value \"{word}\"")).at(0)
                            .hint(format!("one of: {}", known.join(", "))))
                    }
                }
            }
        }
    };
    (@join $first:literal $(, $rest:literal)*) => { concat!($first $(, " | ", $rest)*) };
}

/// A set of words: `word_set! { pub struct Methods { GET = 1 "GET", .. } }`; the value is a bit mask.
#[macro_export]
macro_rules! word_set {
    ($(#[$about:meta])* pub struct $Name:ident { $($Flag:ident = $bit:literal $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Name(pub u32);
        impl $Name {
            $(#[doc = concat!("`", $word, "`")] pub const $Flag: $Name = $Name($bit);)+
            /// The words with their bits, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, u32)] = &[$(($word, $bit)),+];
            /// Tells whether the set has a word of another set.
            #[must_use]
            pub const fn has(self, other: $Name) -> bool { self.0 & other.0 != 0 }
        }
        impl $crate::ValueKind for $Name {
            const SYNTAX: &'static str = $crate::words!(@join $($word),+);
            // Words of later lines are added.
            const REPEATS: bool = true;
            fn append(&mut self, later: Self) {
                self.0 |= later.0;
            }
            fn meets(
                &self,
                later: &Self,
                cx: &mut $crate::Cx,
                d: &$crate::Directive,
            ) -> Result<(), $crate::Problem> {
                for (word, _) in Self::WORDS.iter().filter(|(_, bit)| self.0 & later.0 & bit != 0) {
                    cx.warn(d, format!("duplicate value \"{word}\""));
                }
                Ok(())
            }
            fn parse(cx: &mut $crate::Cx, d: &$crate::Directive) -> Result<Self, $crate::Problem> {
                let mut mask = 0;
                for (index, word) in d.args.iter().enumerate() {
                    let word = word.text();
                    match Self::WORDS.iter().find(|(w, _)| w.eq_ignore_ascii_case(&word)) {
                        Some((_, bit)) if mask & bit != 0 => cx.warn(d, format!("duplicate value \"{word}\"")),
                        Some((_, bit)) => mask |= bit,
                        None => {
                            let known: Vec<&str> = Self::WORDS.iter().map(|(w, _)| *w).collect();
                            return Err($crate::Problem::says(format!("invalid value \"{word}\"")).at(index)
                                .hint(format!("any of: {}", known.join(", "))));
                        }
                    }
                }
                Ok($Name(mask))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::Cx;
    use crate::table::{ValueKind, synthetic_directive};

    crate::words! { pub enum One { Any = "any", All = "all" } }
    crate::word_set! { pub struct Several { GET = 1 "GET", OFF = 2 "off" } }

    #[test]
    fn words_are_found_in_any_case() {
        let one = |text: &str| One::parse(&mut Cx::default(), &synthetic_directive("one", text)).ok();
        assert_eq!(["any", "ALL", "al"].map(one), [Some(One::Any), Some(One::All), None]);
        let several = |text: &str| Several::parse(&mut Cx::default(), &synthetic_directive("several", text)).ok();
        assert!(several("get").is_some_and(|found| found.has(Several::GET)));
        assert_eq!(["Off", "gets"].map(several), [Some(Several::OFF), None]);
    }
}
