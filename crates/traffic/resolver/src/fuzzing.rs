//! Body of the DNS fuzz target: arbitrary bytes as a message, a panic when an invariant fails.

use crate::message::{Data, Message, NAME_MAX, Question, RECORDS_MAX, RecordType};

/// Panics unless names and records respect their bounds and valid names encode to equal ones.
pub fn dns(data: &[u8]) {
    let Some(answer) = Message::read(data) else { return };
    assert!(answer.records.len() <= RECORDS_MAX);
    let names = answer.records.iter().flat_map(|record| match &record.data {
        Data::Alias(target) | Data::Pointer(target) | Data::Service { target, .. } => {
            [Some(&record.name), Some(target)]
        }
        _ => [Some(&record.name), None],
    });
    for name in names.flatten().chain(answer.question.as_ref().map(|(name, _)| name)) {
        assert!(name.len() <= NAME_MAX);
        let question = Question { id: answer.id, name: name.clone(), kind: RecordType::A };
        if let Some(bytes) = question.bytes() {
            let again = Message::read(&bytes).expect("our own question");
            assert_eq!(again.question, Some((name.clone(), 1)));
            assert!(!question.fits(&again), "a question is no answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{DnsRecord, build};
    use std::net::IpAddr;

    #[test]
    fn answers_that_were_tampered_with() {
        let question = Question { id: 7, name: "a.example".into(), kind: RecordType::A }.bytes().expect("a name");
        let record = |name: &str, data| DnsRecord { name: name.into(), ttl: 9, data };
        let good = build::answer(
            &question,
            0,
            &[
                record("a.example", Data::Alias("b.example".into())),
                record("b.example", Data::Address(IpAddr::from([127, 0, 0, 1]))),
                record("s", Data::Service { priority: 1, weight: 2, port: 3, target: "t.example".into() }),
            ],
        );
        let mut state = testkit::Random::new(0x9E37_79B9_7F4A_7C15);
        let mut next = move |n: usize| state.below(n);
        let mut read = 0;
        for _ in 0..50_000 {
            let mut bytes = good.clone();
            for _ in 0..next(4) {
                let at = next(bytes.len());
                bytes[at] = [next(256) as u8, 0xc0, 0x0c][next(3)];
            }
            bytes.truncate(bytes.len() - [0, 0, 0, next(20)][next(4)]);
            read += usize::from(Message::read(&bytes).is_some());
            dns(&bytes);
        }
        assert!(read > 1000, "only {read} of them were read");
    }
}
