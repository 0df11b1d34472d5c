//! Names of countries (`countries.tsv`: ISO 3166-1 codes, continent, name) and regions (`regions.tsv`: country and FIPS
//! 10-4, or ISO 3166-2 for the United States and Canada) by database numbers.

use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Country {
    pub code: &'static str,
    pub code3: &'static str,
    pub continent: &'static str,
    name: &'static str,
}

impl Country {
    /// Returns the name; the only one outside of ASCII is transliterated unless `utf8` is set.
    pub fn name(&self, utf8: bool) -> &'static str {
        if utf8 && self.code == "CW" { "Cura\u{e7}ao" } else { self.name }
    }
}

pub fn find_country(number: usize) -> Option<Country> {
    static ALL: OnceLock<Vec<Country>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let read = |line: &'static str| {
            let mut parts = line.split('\t');
            let mut next = || parts.next().unwrap_or_default();
            Country { code: next(), code3: next(), continent: next(), name: next() }
        };
        include_str!("countries.tsv").lines().map(read).collect()
    });
    all.get(number).copied()
}

pub fn region_name(country: &str, region: &str) -> Option<&'static str> {
    static ALL: OnceLock<Vec<(&'static str, &'static str)>> = OnceLock::new();
    let all =
        ALL.get_or_init(|| include_str!("regions.tsv").lines().filter_map(|line| line.split_once('\t')).collect());
    // Codes have two characters.
    let key = format!("{country}{}", region.get(..2)?);
    all.binary_search_by(|(code, _)| code.cmp(&key.as_str()))
        .ok()
        .and_then(|index| all.get(index))
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countries_and_regions() {
        let name = |number| find_country(number).map(|c| (c.code, c.code3, c.continent, c.name(true)));
        assert_eq!(name(0), Some(("--", "--", "--", "N/A")));
        assert_eq!(name(185), Some(("RU", "RUS", "EU", "Russian Federation")));
        assert_eq!(name(225), Some(("US", "USA", "NA", "United States")));
        assert_eq!(name(255), Some(("O1", "O1", "--", "Other")));
        assert_eq!(name(256), None);
        assert_eq!(region_name("US", "CA"), Some("California"));
        assert_eq!(region_name("RU", "48"), Some("Moscow City"));
        assert_eq!(region_name("GB", "A1"), Some("Barking and Dagenham"));
        assert_eq!((region_name("US", "ZZ"), region_name("US", ""), region_name("", "CA")), (None, None, None));
    }

    #[test]
    fn regions_are_in_order() {
        let codes: Vec<&str> = include_str!("regions.tsv").lines().filter_map(|line| line.split('\t').next()).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(codes.iter().all(|code| code.len() == 4));
    }
}
