//! "Did you mean": the nearest of a list of words.

/// Candidate nearest to `word`, if within a typing error.
pub fn nearest_word<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.len() / 3).clamp(1, 3);
    candidates
        .map(|c| (distance(word, c, limit), c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, c)| (*d, c.len()))
        .map(|(_, c)| c)
}

/// Edit distance in which a transposition counts once; returns `limit + 1` beyond `limit`.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let mut now = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            now[j] = (rows[1][j] + 1).min(now[j - 1] + 1).min(rows[1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                now[j] = now[j].min(rows[0][j - 2] + 1);
            }
        }
        rows[0] = std::mem::replace(&mut rows[1], now);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let words = ["server_name", "server_tokens", "listen", "root"];
        assert_eq!(nearest_word("servername", words.into_iter()), Some("server_name"));
        assert_eq!(nearest_word("lsiten", words.into_iter()), Some("listen"));
        assert_eq!(nearest_word("rot", words.into_iter()), Some("root"));
        assert_eq!(nearest_word("banana", words.into_iter()), None);
    }
}
