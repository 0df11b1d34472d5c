//! InfluxDB's line protocol for metrics of a run: `/write` of version 1, and `/api/v2/write` of version 2 with a token.

use super::remote_write::SeriesSample;

/// One line for each sample: the name as measurement, labels as tags, the value as field `value`; times in milliseconds.
pub fn influx_lines(samples: &[SeriesSample], at: i64) -> Vec<u8> {
    let mut out = String::new();
    for sample in samples.iter().filter(|sample| sample.value.is_finite()) {
        let named = sample.labels.iter().find(|(name, _)| name == "__name__");
        out.push_str(&escape(named.map_or("tidegate_bench", |(_, name)| name), &[',', ' ']));
        let mut tags: Vec<&(String, String)> = sample.labels.iter().filter(|(name, _)| name != "__name__").collect();
        tags.sort();
        for (name, value) in tags {
            // The protocol has no empty tag.
            if !value.is_empty() {
                out.push_str(&format!(",{}={}", escape(name, &[',', '=', ' ']), escape(value, &[',', '=', ' '])));
            }
        }
        out.push_str(&format!(" value={} {at}\n", sample.value));
    }
    out.into_bytes()
}

/// Target of a write in milliseconds. A path `/api/v2/write` or none of both with a query `org=` is version 2's.
pub fn write_target(path: &str) -> Result<String, String> {
    let (place, query) = path.split_once('?').unwrap_or((path, ""));
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let place = match place {
        "/" | "" if has("org") || has("bucket") => "/api/v2/write",
        "/" | "" => "/write",
        other => other,
    };
    let missing = match place.ends_with("/api/v2/write") {
        true => ["bucket"].into_iter().find(|name| !has(name)),
        false => ["db"].into_iter().find(|name| !has(name)),
    };
    if let Some(name) = missing {
        return Err(format!("the URL has no {name}: write {place}?{name}=NAME"));
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| pair.split('=').next() != Some("precision")).collect();
    Ok(format!("{place}?{}&precision=ms", kept.join("&")))
}

fn escape(text: &str, special: &[char]) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            // A line ends a point, whatever stands before it.
            '\n' | '\r' => out.push_str("\\ "),
            c if special.contains(&c) => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.trim_end_matches('\\').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_tags_and_a_field() {
        let sample = |labels: &[(&str, &str)], value| SeriesSample {
            labels: labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            value,
        };
        let samples = [
            sample(&[("run", "50 connections, a=b"), ("__name__", "answers_total"), ("code", "200")], 5.0),
            sample(&[("__name__", "x"), ("run", "")], 0.25),
            sample(&[("__name__", "y")], f64::NAN),
            sample(&[("__name__", "z"), ("run", "a\nb\\")], 1.0),
        ];
        let text = String::from_utf8(influx_lines(&samples, 1000)).unwrap();
        let expected = "answers_total,code=200,run=50\\ connections\\,\\ a\\=b value=5 1000\nx value=0.25 1000\nz,run=a\\ b value=1 1000\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn both_versions_are_written_to() {
        assert_eq!(write_target("/write?db=a").as_deref(), Ok("/write?db=a&precision=ms"));
        assert_eq!(write_target("/?db=a&precision=s").as_deref(), Ok("/write?db=a&precision=ms"));
        assert_eq!(write_target("/?org=o&bucket=b").as_deref(), Ok("/api/v2/write?org=o&bucket=b&precision=ms"));
        assert_eq!(write_target("/x/api/v2/write?bucket=b").as_deref(), Ok("/x/api/v2/write?bucket=b&precision=ms"));
        assert!(write_target("/").unwrap_err().contains("/write?db=NAME"));
        assert!(write_target("/?org=o").unwrap_err().contains("bucket=NAME"));
    }
}
