//! Body of the upstream protocols' fuzz targets.

use http_types::{BodyLength, Method};
use upstream::{Event, RequestFacts, SerialCodec};

/// Maximum size of a head in bytes.
const HEAD_MAX: usize = 1024;

#[derive(Debug, Default, PartialEq, Eq)]
struct FuzzOutcome {
    head: Option<(u16, String)>,
    body: Vec<u8>,
    ended: bool,
    wrong: bool,
}

/// Panics unless a response gives one result however its bytes are split, bodies respect announced lengths and follow a
/// head, and every step terminates. The first byte selects the request, two more the split.
pub fn cut_anywhere(data: &[u8], request: &[u8], make: &dyn Fn(bool) -> Box<dyn SerialCodec>) {
    let [what, high, low, said @ ..] = data else { return };
    let method = if what & 1 == 0 { Method::Get } else { Method::Head };
    let asked = RequestFacts { method, head_max: HEAD_MAX, chunked: what & 2 != 0 };
    let run = |pieces: &[&[u8]]| run(&mut *make(what & 4 != 0), &asked, request, pieces);
    let whole = run(&[said]);
    let at = (usize::from(*high) << 8 | usize::from(*low)) % (said.len() + 1);
    let (head, tail) = said.split_at(at);
    let cut = run(&[head, tail]);
    assert_eq!((&whole.head, whole.ended, whole.wrong), (&cut.head, cut.ended, cut.wrong), "cut at {at}");
    // Bytes before an error may be lost.
    if !whole.wrong {
        assert_eq!(whole.body.escape_ascii().to_string(), cut.body.escape_ascii().to_string(), "cut at {at}");
    }
}

fn run(codec: &mut dyn SerialCodec, asked: &RequestFacts, request: &[u8], pieces: &[&[u8]]) -> FuzzOutcome {
    codec.begin(asked, request);
    let (mut outcome, mut input, mut out) = (FuzzOutcome::default(), Vec::new(), Vec::new());
    let mut announced = None;
    let mut steps = 16 + 4 * pieces.iter().map(|piece| piece.len()).sum::<usize>();
    for piece in pieces {
        if outcome.ended || outcome.wrong {
            break;
        }
        input.extend_from_slice(piece);
        loop {
            assert!(steps > 0, "every step takes something");
            steps -= 1;
            match codec.decode(&mut input, &mut out) {
                Ok(None) => break,
                Ok(Some(Event::Head(begun))) => {
                    assert!(outcome.head.is_none(), "one head");
                    assert!(begun.head_bytes <= begun.answer.buf.len());
                    announced = Some(begun.length);
                    outcome.head = Some((begun.answer.head.status, format!("{:?}", begun.length)));
                }
                Ok(Some(Event::Body(bytes))) => {
                    assert!(outcome.head.is_some() && !bytes.is_empty(), "a body behind its head");
                    outcome.body.extend_from_slice(&bytes);
                }
                Ok(Some(Event::End(_))) => {
                    assert!(outcome.head.is_some(), "an end behind a head");
                    outcome.ended = true;
                    break;
                }
                Ok(Some(Event::Interim(..) | Event::Stderr(_))) => {}
                Err(_) => {
                    outcome.wrong = true;
                    break;
                }
            }
        }
    }
    let got = outcome.body.len() as u64;
    match announced {
        Some(BodyLength::None) => assert_eq!(got, 0, "a body where there is none"),
        Some(BodyLength::Exact(n)) => {
            assert!(got <= n, "{got} octets of {n}");
            assert!(!outcome.ended || got == n, "{got} octets of {n} at the end");
        }
        _ => {}
    }
    if !outcome.ended
        && !outcome.wrong
        && let Ok(Some(_)) = codec.closed()
    {
        assert!(outcome.head.is_some() && !codec.is_reusable(), "what ends with its connection");
        assert!(!matches!(announced, Some(BodyLength::Exact(n)) if got < n), "{got} octets are not whole");
    }
    outcome
}
