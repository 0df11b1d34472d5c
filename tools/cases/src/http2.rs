//! A client of HTTP/2.

use crate::expect::{Answer, wanted_answers};
use crate::parse::{Act, CaseStep, Request};
use crate::wire::Wire;
use http_types::List;
use wire_h2::hpack::Encoder;
use wire_h2::{Client, ClientEvent, ClientLimits};

#[derive(Debug, Default)]
pub struct Came {
    /// The last one may be cut off.
    pub answers: Vec<Answer>,
    /// The code that the stream was reset with before its end.
    pub reset: Option<u32>,
}

pub struct Http2 {
    wire: Wire,
    client: Client,
    scheme: &'static str,
    ended: bool,
}

impl Http2 {
    pub fn new(wire: Wire) -> Http2 {
        let scheme = if matches!(wire, Wire::Clear(_)) { "http" } else { "https" };
        Http2 { wire, client: Client::new(ClientLimits::default()), scheme, ended: false }
    }

    /// # Errors
    /// The unexpected answer.
    pub fn exchange(&mut self, step: &CaseStep) -> Result<Vec<Answer>, String> {
        let Act::Request(request) = &step.act else { return Err("only HTTP/1 and the stream block take that".into()) };
        step_answers(self.ask(request)?, step)
    }

    /// Returns all responses to one request.
    ///
    /// # Errors
    /// The connection is broken, or nothing comes for too long.
    pub fn ask(&mut self, request: &Request) -> Result<Came, String> {
        let body = request.body.as_deref().unwrap_or("").as_bytes();
        let block = block(request, self.scheme);
        let stream = self.client.open(&block, request.body.is_none()).ok_or("no stream can be opened")?;
        let (mut sent, mut done) = (0, request.body.is_none());
        let mut came = Came::default();
        let answers = &mut came.answers;
        let mut over = false;
        while !over {
            if !done {
                sent += self.client.send_body(stream, &body[sent..], true);
                done = sent == body.len();
            }
            self.flush();
            while let Some(event) = self.client.poll_event() {
                match event {
                    ClientEvent::Head { stream: id, list, end, .. } if id == stream => {
                        answers.push(list_answer(&list)?);
                        over |= end;
                    }
                    ClientEvent::Body { stream: id, bytes, end, .. } if id == stream => {
                        answers.last_mut().ok_or("a body without a head")?.body.extend_from_slice(&bytes);
                        self.client.consumed(stream, bytes.len());
                        over |= end;
                    }
                    ClientEvent::Trailers { stream: id, list, .. } if id == stream => {
                        let trailers = list_answer(&list)?.headers;
                        answers.last_mut().ok_or("trailers without a head")?.headers.extend(trailers);
                        over = true;
                    }
                    // A response before the end of the request means that the rest is not wanted.
                    ClientEvent::Reset { stream: id, code, .. } if id == stream && !over => {
                        over = true;
                        came.reset = Some(code);
                    }
                    _ => {}
                }
            }
            over |= self.ended;
            if !over {
                self.receive()?;
            }
        }
        self.client.forget(stream);
        self.flush();
        Ok(came)
    }

    fn flush(&mut self) {
        // A peer that closed the connection accepts no more frames; earlier frames count.
        let _ = self.wire.send(self.client.output());
        self.client.advance(self.client.output().len());
    }
    fn receive(&mut self) -> Result<(), String> {
        let mut bytes = Vec::new();
        self.ended = !self.wire.receive(&mut bytes)?;
        self.client.receive(&bytes).map_err(|e| e.words.to_string())
    }
}

/// The answers that a step wants, if these are they.
pub fn step_answers(came: Came, step: &CaseStep) -> Result<Vec<Answer>, String> {
    let (wanted, closed) = wanted_answers(&step.expect);
    let Came { mut answers, reset } = came;
    if let Some(code) = reset {
        if !closed {
            return Err(format!("the stream was reset with {code}, after {answers:?}"));
        }
        // A truncated answer does not count.
        answers.pop();
    }
    if answers.len() != wanted {
        return Err(format!("{} responses instead of {wanted}: {answers:?}", answers.len()));
    }
    Ok(answers)
}

fn block(request: &Request, scheme: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::stateless();
    encoder.begin(&mut out);
    for (name, value) in request_fields(request, scheme) {
        encoder.field(&name, &value, &mut out);
    }
    out
}

/// A request's fields as HTTP/2 and HTTP/3 have them, pseudo-header fields first.
pub fn request_fields(request: &Request, scheme: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut put = |name: &str, value: &str| out.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    let is_pseudo = |name: &str| name.starts_with(':');
    let said = |name: &str| request.field(name).is_some();
    // A field of the case replaces the default one.
    let host = if said(":authority") { None } else { request.field("host").or(Some("localhost")) };
    let usual = [
        (":method", Some(request.method.as_str())),
        (":scheme", Some(scheme)),
        (":path", Some(request.target.as_str())),
        (":authority", host),
    ];
    for (name, value) in usual {
        if let Some(value) = value.filter(|_| !said(name)) {
            put(name, value);
        }
    }
    for (name, value) in request.fields.iter().filter(|(name, _)| is_pseudo(name)) {
        put(name, value);
    }
    for (name, value) in request.fields.iter().filter(|(name, _)| !is_pseudo(name)) {
        if host.is_none() || !name.eq_ignore_ascii_case("host") {
            put(&name.to_ascii_lowercase(), value.trim_matches(' '));
        }
    }
    if let Some(body) = request.body.as_ref().filter(|_| !said("content-length")) {
        put("content-length", &body.len().to_string());
    }
    out
}

pub fn list_answer(list: &List) -> Result<Answer, String> {
    let mut answer = Answer::default();
    for (name, value) in list.iter() {
        let value = String::from_utf8_lossy(value).into_owned();
        if name == b":status" {
            answer.status = value.parse().map_err(|_| format!("\"{value}\" is no status"))?;
        } else {
            answer.headers.push((String::from_utf8_lossy(name).into_owned(), value));
        }
    }
    Ok(answer)
}
