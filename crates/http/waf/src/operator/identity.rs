//! Numbers with check digits: payment cards, Brazil's CPF, the US social security number, Austria's SVNR.

/// The scheme of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentityScheme {
    PaymentCard,
    Cpf,
    SocialSecurity,
    Svnr,
}

impl IdentityScheme {
    /// Returns whether the digits of a text that the rule's pattern matched are a valid number.
    pub fn is_valid(self, text: &[u8]) -> bool {
        let digits: Vec<u32> = text.iter().filter_map(|byte| (*byte as char).to_digit(10)).collect();
        match self {
            IdentityScheme::PaymentCard => luhn(&digits),
            IdentityScheme::Cpf => cpf(&digits),
            IdentityScheme::SocialSecurity => social_security(&digits),
            IdentityScheme::Svnr => svnr(&digits),
        }
    }
}

fn all_equal(digits: &[u32]) -> bool {
    digits.windows(2).all(|pair| pair.first() == pair.last())
}

/// Luhn's sum (ISO/IEC 7812-1, annex B).
fn luhn(digits: &[u32]) -> bool {
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let reversed = digits.iter().rev().enumerate();
    let sum: u32 = reversed.map(|(index, digit)| if index % 2 == 1 { doubled(*digit) } else { *digit }).sum();
    !digits.is_empty() && sum.is_multiple_of(10)
}

/// Two check digits modulo 11 behind nine digits; equal digits are invalid, and so is 01234567890.
fn cpf(digits: &[u32]) -> bool {
    let check = |count: usize| {
        let sum: u32 =
            digits.iter().take(count).zip((2..=count as u32 + 1).rev()).map(|(digit, weight)| digit * weight).sum();
        match sum % 11 {
            0 | 1 => 0,
            rest => 11 - rest,
        }
    };
    let [.., tenth, eleventh] = digits else { return false };
    let is_sequence = digits.iter().zip([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]).all(|(digit, known)| *digit == known);
    digits.len() == 11 && !all_equal(digits) && !is_sequence && *tenth == check(9) && *eleventh == check(10)
}

fn social_security(digits: &[u32]) -> bool {
    let number =
        |range: std::ops::Range<usize>| digits.get(range).unwrap_or_default().iter().fold(0, |n, digit| n * 10 + digit);
    let is_sequence = digits.windows(2).all(|pair| matches!(pair, [a, b] if a + 1 == *b));
    let (area, group, serial) = (number(0..3), number(3..5), number(5..9));
    digits.len() == 9
        && !is_sequence
        && !all_equal(digits)
        && area != 0
        && area != 666
        && area < 740
        && group != 0
        && serial != 0
}

/// The fourth of ten digits is a weighted sum modulo 11.
fn svnr(digits: &[u32]) -> bool {
    const WEIGHTS: [u32; 10] = [3, 7, 9, 0, 5, 8, 4, 2, 1, 6];
    let sum: u32 = digits.iter().zip(WEIGHTS).map(|(digit, weight)| digit * weight).sum();
    let check = if sum % 11 == 10 { 0 } else { sum % 11 };
    digits.len() == 10 && !all_equal(digits) && digits.get(3) == Some(&check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_digits_are_verified() {
        assert!(IdentityScheme::PaymentCard.is_valid(b"5484605089158216"));
        assert!(!IdentityScheme::PaymentCard.is_valid(b"5484605089158217"));
        assert!(IdentityScheme::Cpf.is_valid(b"529.982.247-25"));
        assert!(!IdentityScheme::Cpf.is_valid(b"111.111.111-11"));
        assert!(IdentityScheme::SocialSecurity.is_valid(b"219-09-9998"));
        assert!(!IdentityScheme::SocialSecurity.is_valid(b"666-09-9998"));
        assert!(IdentityScheme::Svnr.is_valid(b"1237 010180"));
        assert!(!IdentityScheme::Svnr.is_valid(b"1238 010180"));
    }
}
