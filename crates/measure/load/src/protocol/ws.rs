//! WebSocket client (RFC 6455): each request of a run is a message, and the next message of the server is its answer.
//! The engine carries the upgrade before the first message.

use base64::Engine as _;
use figures::rng::Rng;

use super::{ClientProtocol, EncodedRequest, Event, ProtocolStep, ResponseSummary};
use crate::engine::failure::LoadFailure;
use crate::engine::job::Job;
use crate::engine::request::PreparedRequest;
use crate::engine::session::{SessionVariables, head_fields};

/// Octets of a message of the server at most.
const MESSAGE_MAX: u64 = 64 * 1024 * 1024;
/// RFC 6455, 1.3.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Key of every upgrade: it only shows that the server speaks the protocol.
const KEY: &str = "dGlkZWdhdGUtYmVuY2gtLQ==";
/// An empty close frame, masked by zeros.
const FAREWELL: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Requests that upgrade connections, and the expected answer.
pub struct WsSettings {
    upgrade: Vec<u8>,
    accept: String,
}

/// One connection after its upgrade.
pub struct Ws {
    /// Messages without an answer, and whether their answers are inspected.
    waiting: std::collections::VecDeque<bool>,
    /// Unfinished head of a frame, and payload of an unfinished control frame.
    head: Vec<u8>,
    /// WsFrame in progress: its opcode, end of the message, and octets that are left.
    frame: Option<WsFrame>,
    control: Vec<u8>,
    in_message: bool,
    body: u64,
    overhead: u64,
}

#[derive(Clone, Copy, Debug)]
struct WsFrame {
    opcode: u8,
    is_last: bool,
    left: u64,
}

impl Ws {
    /// Appends a masked frame.
    fn write_frame(opcode: u8, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
        out.push(0x80 | opcode);
        match payload.len() {
            length @ 0..=125 => out.push(0x80 | length as u8),
            length @ 126..=0xffff => {
                out.push(0x80 | 126);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                out.push(0x80 | 127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    }

    /// Parses the head of a frame: its length and the frame; `None` when incomplete. Fails on what a server must not
    /// send (RFC 6455, 5.1 and 5.5).
    fn parse_head(&self, bytes: &[u8]) -> Result<Option<(usize, WsFrame)>, LoadFailure> {
        let &[first, second, ..] = bytes else { return Ok(None) };
        let (opcode, is_last) = (first & 0x0f, first & 0x80 != 0);
        let is_control = opcode >= CLOSE;
        let known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
        if first & 0x70 != 0 || second & 0x80 != 0 || !known {
            return Err(LoadFailure::Protocol);
        }
        let (size, left) = match second {
            126 => match bytes.get(2..4) {
                Some(&[a, b]) => (4, u64::from(u16::from_be_bytes([a, b]))),
                _ => return Ok(None),
            },
            127 => match bytes.get(2..10).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
                Some(length) => (10, u64::from_be_bytes(length)),
                None => return Ok(None),
            },
            length => (2, u64::from(length)),
        };
        let continues = opcode == CONTINUATION;
        if is_control && (left > 125 || !is_last)
            || !is_control && (continues != self.in_message || self.body.saturating_add(left) > MESSAGE_MAX)
        {
            return Err(LoadFailure::Protocol);
        }
        Ok(Some((size, WsFrame { opcode, is_last, left })))
    }

    /// Ends a frame whose payload is complete.
    fn end_frame(&mut self, frame: WsFrame) -> Result<Event, LoadFailure> {
        self.frame = None;
        match frame.opcode {
            CLOSE => Err(LoadFailure::ClosedEarly),
            PING => {
                let mut out = Vec::new();
                Ws::write_frame(PONG, &std::mem::take(&mut self.control), [0; 4], &mut out);
                Ok(Event::Send(out))
            }
            PONG => Ok(Event::More),
            _ if !frame.is_last => Ok(Event::More),
            _ => {
                self.in_message = false;
                let (body, overhead) = (std::mem::take(&mut self.body), std::mem::take(&mut self.overhead));
                // A message that nothing asked for is no answer.
                Ok(match self.waiting.pop_front() {
                    Some(_) => Event::Answer(ResponseSummary {
                        lane: 0,
                        status: 0,
                        grpc: None,
                        body,
                        overhead,
                        reusable: true,
                    }),
                    None => Event::More,
                })
            }
        }
    }
}

impl ClientProtocol for Ws {
    type Shared = WsSettings;

    const NAME: &'static [u8] = b"http/1.1";
    const MULTIPLEXED: bool = false;
    const UPGRADES: bool = true;

    fn shared(_: &Job, requests: &[PreparedRequest]) -> Result<WsSettings, String> {
        let first = requests.first().ok_or("there is no message to send")?;
        let mut upgrade = Vec::new();
        first.write_upgrade(KEY, &mut upgrade);
        let digest = aws_lc_rs::digest::digest(
            &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
            format!("{KEY}{ACCEPT_SUFFIX}").as_bytes(),
        );
        let accept = base64::engine::general_purpose::STANDARD.encode(digest.as_ref());
        Ok(WsSettings { upgrade, accept })
    }

    fn new(_: &WsSettings) -> Self {
        Ws {
            waiting: Default::default(),
            head: Vec::new(),
            frame: None,
            control: Vec::new(),
            in_message: false,
            body: 0,
            overhead: 0,
        }
    }

    fn upgrade_request(shared: &WsSettings) -> &[u8] {
        &shared.upgrade
    }

    fn check_upgrade(shared: &WsSettings, head: &[u8]) -> Result<(), String> {
        let line = head.split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default();
        if !line.starts_with(b"HTTP/1.1 101") {
            let line = String::from_utf8_lossy(line).escape_default().to_string();
            return Err(format!("the server answered the upgrade with `{line}`"));
        }
        match head_fields(head, "sec-websocket-accept").next() {
            Some(value) if value == shared.accept.as_bytes() => Ok(()),
            _ => Err("the server's Sec-WebSocket-Accept is not that of the request".into()),
        }
    }

    fn farewell() -> &'static [u8] {
        &FAREWELL
    }

    fn submit<'a>(
        &mut self,
        request: &'a PreparedRequest,
        sequence: u64,
        variables: &SessionVariables,
        rng: &mut Rng,
        output: &mut Vec<u8>,
    ) -> EncodedRequest<'a> {
        self.waiting.push_back(request.wants_body());
        let mut payload = Vec::new();
        request.write_body(sequence, variables, rng, &mut payload);
        let opcode = if std::str::from_utf8(&payload).is_ok() { TEXT } else { BINARY };
        let mask = (rng.below(1 << 32) as u32).to_be_bytes();
        Ws::write_frame(opcode, &payload, mask, output);
        EncodedRequest::Written
    }

    fn head(&self) -> &[u8] {
        &[]
    }

    fn receive(&mut self, input: &[u8], _: &mut WsSettings) -> Result<ProtocolStep, LoadFailure> {
        let mut consumed = 0;
        let mut frame = match self.frame {
            Some(frame) => frame,
            None => {
                let before = self.head.len();
                self.head.extend_from_slice(&input[..input.len().min(14 - before.min(14))]);
                let Some((size, frame)) = self.parse_head(&self.head)? else {
                    return Ok(ProtocolStep { consumed: input.len(), event: Event::More });
                };
                self.head.clear();
                consumed = size - before;
                self.overhead += size as u64;
                self.in_message |= frame.opcode < CLOSE;
                frame
            }
        };
        let rest = &input[consumed..];
        let take = frame.left.min(rest.len() as u64) as usize;
        frame.left -= take as u64;
        let range = consumed..consumed + take;
        consumed += take;
        self.frame = Some(frame);
        let is_control = frame.opcode >= CLOSE;
        if is_control {
            self.control.extend_from_slice(&input[range.clone()]);
        } else {
            self.body += take as u64;
            // With nothing left, the next call ends the frame.
            if take > 0 && self.waiting.front() == Some(&true) {
                return Ok(ProtocolStep { consumed, event: Event::Body { lane: 0, range } });
            }
        }
        let event = if frame.left == 0 { self.end_frame(frame)? } else { Event::More };
        if is_control && frame.left == 0 {
            self.control.clear();
        }
        Ok(ProtocolStep { consumed, event })
    }

    fn is_due(&self) -> bool {
        self.frame.is_some_and(|frame| frame.left == 0)
    }

    fn end_of_input(&mut self) -> Result<Option<ResponseSummary>, LoadFailure> {
        match () {
            () if self.waiting.is_empty() => Ok(None),
            () if self.in_message || self.frame.is_some() => Err(LoadFailure::Truncated),
            () => Err(LoadFailure::ClosedEarly),
        }
    }

    fn skippable(&self) -> u64 {
        0
    }

    fn skip(&mut self, _: u64) -> Event {
        Event::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::request::RequestSpec;

    fn settings() -> WsSettings {
        let request = PreparedRequest::new(&RequestSpec::get("/chat"), "h", &["X-A: 1".into()], false).unwrap();
        let job = crate::engine::sim::sim_job(1, 1.0);
        Ws::shared(&job, &[request]).unwrap()
    }

    /// Events of input in pieces of `size` octets.
    fn events(ws: &mut Ws, bytes: &[u8], size: usize) -> Vec<Event> {
        let (mut shared, mut out) = (settings(), Vec::new());
        for piece in bytes.chunks(size) {
            let mut at = 0;
            while at < piece.len() || ws.is_due() {
                let step = ws.receive(&piece[at..], &mut shared).unwrap();
                at += step.consumed;
                if !matches!(step.event, Event::More | Event::Body { .. }) {
                    out.push(step.event);
                }
            }
        }
        out
    }

    fn asking(wants_body: bool) -> Ws {
        let mut ws = Ws::new(&settings());
        ws.waiting.push_back(wants_body);
        ws
    }

    #[test]
    fn an_upgrade_has_its_key_and_its_answer_is_checked() {
        let shared = settings();
        let text = String::from_utf8(shared.upgrade.clone()).unwrap();
        assert!(text.starts_with("GET /chat HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n"), "{text}");
        assert!(text.contains("Upgrade: websocket\r\n") && text.contains("Sec-WebSocket-Version: 13\r\n"), "{text}");
        let answer = |accept: &str| format!("HTTP/1.1 101 X\r\nSec-WebSocket-Accept: {accept}\r\n\r\n");
        assert_eq!(Ws::check_upgrade(&shared, answer(&shared.accept).as_bytes()), Ok(()));
        assert!(Ws::check_upgrade(&shared, answer("x").as_bytes()).unwrap_err().contains("Accept"));
        assert!(Ws::check_upgrade(&shared, b"HTTP/1.1 404 X\r\n\r\n").unwrap_err().contains("404"));
    }

    #[test]
    fn answers_are_whole_messages_however_they_arrive() {
        // A fragmented message with a ping between, and a message that nothing asked for.
        let bytes = [&[0x01, 2][..], b"he", &[0x89, 1, b'p'], &[0x80, 3], b"llo", &[0x82, 1, 0]].concat();
        for size in 1..=bytes.len() {
            for wants_body in [false, true] {
                let found = events(&mut asking(wants_body), &bytes, size);
                let pong = Event::Send(vec![0x8a, 0x81, 0, 0, 0, 0, b'p']);
                assert_eq!(found.len(), 2, "{size}: {found:?}");
                assert_eq!(found[0], pong);
                assert!(
                    matches!(found[1], Event::Answer(answer) if answer.body == 5 && answer.status == 0),
                    "{found:?}"
                );
            }
        }
        let long = [&[0x82, 126, 1, 0][..], &[7; 256]].concat();
        assert!(matches!(events(&mut asking(false), &long, 100)[..], [Event::Answer(answer)] if answer.body == 256));
        assert!(matches!(events(&mut asking(true), &[0x81, 0], 1)[..], [Event::Answer(_)]));
    }

    #[test]
    fn forbidden_frames_end_the_connection() {
        for bytes in [
            &[0x81, 0x80, 0, 0, 0, 0][..],
            &[0xc1, 0],
            &[0x83, 0],
            &[0x80, 0],
            &[0x09, 0],
            &[0x89, 126, 0, 200],
            &[0x82, 127, 1, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(asking(false).receive(bytes, &mut settings()).unwrap_err(), LoadFailure::Protocol, "{bytes:?}");
        }
        assert_eq!(asking(false).receive(&[0x88, 0], &mut settings()).unwrap_err(), LoadFailure::ClosedEarly);
        assert_eq!(asking(false).end_of_input(), Err(LoadFailure::ClosedEarly));
    }

    #[test]
    fn messages_are_masked() {
        let mut ws = Ws::new(&settings());
        let spec = RequestSpec { body: "n={{seq}}".into(), ..RequestSpec::get("/") };
        let request = PreparedRequest::new(&spec, "h", &[], false).unwrap();
        let mut out = Vec::new();
        ws.submit(&request, 42, &SessionVariables::default(), &mut Rng::new(1), &mut out);
        let (head, rest) = out.split_at(6);
        assert_eq!(head[..2], [0x81, 0x84]);
        let text: Vec<u8> = rest.iter().zip(head[2..].iter().cycle()).map(|(b, m)| b ^ m).collect();
        assert_eq!(text, b"n=42");
    }
}
