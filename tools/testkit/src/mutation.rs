//! Seeded runs of fuzz targets by the test suite.

use crate::Random;

/// Gives a fuzz target the empty input and `rounds` inputs, equal in every run: fewer than `length` words of `words` each,
/// one octet of every fourth input changed.
///
/// # Panics
/// If the target panics, with the input.
pub fn run_mutations(words: &[&str], length: usize, target: fn(&[u8]), rounds: usize) {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    target(b"");
    for round in 0..rounds {
        let mut input = Vec::new();
        for _ in 0..random.below(length) {
            input.extend_from_slice(words[random.below(words.len())].as_bytes());
        }
        if round % 4 == 1 && !input.is_empty() {
            let at = random.below(input.len());
            input[at] = random.below(256_usize) as u8;
        }
        let result = std::panic::catch_unwind(|| target(&input));
        assert!(result.is_ok(), "round {round}: {}", input.escape_ascii());
    }
}

#[cfg(test)]
mod tests {
    use super::run_mutations;

    fn refuse_changed_words(input: &[u8]) {
        assert!(input.iter().all(|octet| b"ab".contains(octet)));
    }

    #[test]
    #[should_panic(expected = "round ")]
    fn a_panic_of_the_target_is_reported_with_its_round() {
        run_mutations(&["a", "b"], 10, refuse_changed_words, 1000);
    }
}
