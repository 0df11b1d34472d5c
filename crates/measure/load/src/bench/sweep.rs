//! Values of a sweep: lists and ranges.

/// Maximum number of points of a sweep.
const POINTS_MAX: usize = 1000;

/// Reads the values of a sweep: a list, `from..to/step`, `from..to*factor`.
pub fn parse_sweep(text: &str) -> Result<Vec<f64>, String> {
    let number = |t: &str| {
        figures::units::parse_count(t)
            .filter(|v| *v > 0.0)
            .ok_or_else(|| format!("--sweep: `{t}` is not a positive number"))
    };
    let mut values = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let Some((from, rest)) = part.split_once("..") else {
            values.push(number(part)?);
            continue;
        };
        let (to, step, factor) = match (rest.split_once('/'), rest.split_once('*')) {
            (Some((to, step)), _) => (number(to)?, number(step)?, 1.0),
            (None, Some((to, factor))) => (number(to)?, 0.0, number(factor)?),
            (None, None) => return Err(format!("--sweep: `{part}` needs a step (/100) or a factor (*2)")),
        };
        if step == 0.0 && factor <= 1.0 {
            return Err(format!("--sweep: the factor of `{part}` must be above 1"));
        }
        let mut value = number(from)?;
        while value <= to * 1.000_001 && values.len() <= POINTS_MAX {
            values.push((value * 1000.0).round() / 1000.0);
            value = if step > 0.0 { value + step } else { value * factor };
        }
    }
    match values.len() {
        0 => Err("--sweep: no value".into()),
        n if n > POINTS_MAX => Err(format!("--sweep: more than {POINTS_MAX} points")),
        _ => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_lists_or_ranges() {
        assert_eq!(parse_sweep("1,2,5").unwrap(), [1.0, 2.0, 5.0]);
        assert_eq!(parse_sweep("1000..3000/500").unwrap(), [1000.0, 1500.0, 2000.0, 2500.0, 3000.0]);
        assert_eq!(parse_sweep("1..8*2,100").unwrap(), [1.0, 2.0, 4.0, 8.0, 100.0]);
        for bad in ["", "x", "1..5", "1..5*1", "0..5/1", "1..1000000/1"] {
            assert!(parse_sweep(bad).is_err(), "{bad}");
        }
    }
}
