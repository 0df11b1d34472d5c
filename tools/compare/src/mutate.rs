//! Directives as people get them wrong: twice, without a value, with a word that is none, with a block, in another block.

use crate::place::BlockPlace;
use crate::{Dice, PlacedFragment};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Repeated in its block.
    Twice,
    /// With an empty word.
    Empty,
    /// With a replaced word.
    Unknown,
    /// With an additional word.
    Longer,
    /// With a block instead of a semicolon.
    Block,
    /// In an invalid context.
    Misplaced,
    /// In a block of values.
    InValues,
}

impl Mutation {
    pub const ALL: [Mutation; 7] = [
        Mutation::Twice,
        Mutation::Empty,
        Mutation::Unknown,
        Mutation::Longer,
        Mutation::Block,
        Mutation::Misplaced,
        Mutation::InValues,
    ];
}

/// Deliberate differences: directive, last word, reason.
const KNOWN: &[(&str, &str, &str)] = &[
    ("error_page", "''", "nginx redirects with a Location without a value; a Location that names nothing is left out"),
    ("modern_browser", "bogus", "both refuse it, nginx without a word"),
    ("modern_browser", "''", "both refuse it, nginx without a word"),
    (
        "auth_request",
        "''",
        "a path without a slash is none: a subrequest for it fails, where nginx opens what root and path are together",
    ),
    ("auth_request", "bogus", "a path without a slash is none: nginx opens a file beside the root"),
];

/// Returns the reason for a known difference of this line.
pub fn known_difference(text: &str) -> Option<&'static str> {
    let words = words(text.trim_end_matches(';'));
    let (first, last) = (words.first()?, words.last()?);
    KNOWN.iter().find(|(name, word, _)| name == first && word == last).map(|(_, _, why)| *why)
}

pub fn mutate_puts(dice: &mut Dice, puts: &mut [PlacedFragment]) {
    if puts.is_empty() {
        return;
    }
    let which = dice.below(puts.len());
    let mutation = Mutation::ALL[dice.below(Mutation::ALL.len())];
    let (place, word) = (BlockPlace::ALL[dice.below(BlockPlace::ALL.len())], dice.below(8));
    let put = &mut puts[which];
    if mutation == Mutation::Misplaced {
        put.place = place;
        return;
    }
    // Leaked: the program is short-lived.
    put.text = Box::leak(mutate_line(put.text, mutation, word).into_boxed_str());
}

/// `word`: index of the affected word, modulo their number.
pub fn mutate_line(text: &str, mutation: Mutation, word: usize) -> String {
    let words = words(text.trim_end_matches(';'));
    let replaced = |with: &str| {
        if words.len() < 2 {
            return text.to_string();
        }
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        let at = 1 + word % (words.len() - 1);
        words[at] = with;
        format!("{};", words.join(" "))
    };
    // A repeated directive with a block stays whole.
    let is_block = text.contains('{');
    match mutation {
        Mutation::Twice => format!("{text} {text}"),
        _ if is_block => text.to_string(),
        Mutation::Empty => replaced("''"),
        Mutation::Unknown => replaced("bogus"),
        Mutation::Longer => format!("{} bogus;", words.join(" ")),
        Mutation::Block => format!("{} {{ }}", words.join(" ")),
        Mutation::InValues => format!("types {{ text/html html {{ {text} }} }}"),
        Mutation::Misplaced => text.to_string(),
    }
}

/// Keeps their quotes.
fn words(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match quote {
            None if c == ' ' => all.push(String::new()),
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ => {}
        }
        if quote.is_some() || c != ' ' {
            all.last_mut().expect("there is one").push(c);
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_mistake() {
        let text = "return 200 'a b';";
        for (mutation, word, want) in [
            (Mutation::Twice, 0, "return 200 'a b'; return 200 'a b';"),
            (Mutation::Empty, 1, "return 200 '';"),
            (Mutation::Unknown, 0, "return bogus 'a b';"),
            (Mutation::Longer, 0, "return 200 'a b' bogus;"),
            (Mutation::Block, 0, "return 200 'a b' { }"),
            (Mutation::InValues, 0, "types { text/html html { return 200 'a b'; } }"),
        ] {
            assert_eq!(mutate_line(text, mutation, word), want);
        }
        assert!(known_difference("error_page 404 '';").is_some() && known_difference("error_page 404 /x;").is_none());
        assert!(known_difference("modern_browser bogus;").is_some());
        assert_eq!(mutate_line("internal;", Mutation::Empty, 3), "internal;");
        assert_eq!(mutate_line("types { }", Mutation::Block, 0), "types { }");
    }
}
