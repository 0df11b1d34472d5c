//! Addresses of configurations.

/// Returns a configuration with something else in the place of a written address or port, such as `127.0.0.1:3000`. A longer
/// number that holds it (a free port that was put in before: `127.0.0.1:30002`) stays.
pub fn replace_address(text: &str, written: &str, address: &str) -> String {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let mut out = String::with_capacity(text.len());
    let mut start = 0;
    for (at, found) in text.match_indices(written) {
        let behind = at + found.len();
        let continues = is_digit(found.chars().next()) && is_digit(text[..at].chars().next_back());
        let goes_on = is_digit(found.chars().next_back()) && is_digit(text[behind..].chars().next());
        if !continues && !goes_on {
            out += &text[start..at];
            out += address;
            start = behind;
        }
    }
    out + &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_addresses_are_replaced() {
        let text = "listen 127.0.0.1:30002;\nproxy_pass http://127.0.0.1:3000/;\nserver 127.0.0.1:3000";
        assert_eq!(
            replace_address(text, "127.0.0.1:3000", "127.0.0.1:43705"),
            "listen 127.0.0.1:30002;\nproxy_pass http://127.0.0.1:43705/;\nserver 127.0.0.1:43705"
        );
        assert_eq!(replace_address("a 18080 8080;80801 8080", "8080", "1"), "a 18080 1;80801 1");
        assert_eq!(replace_address("none", "127.0.0.1:3000", "a"), "none");
    }
}
