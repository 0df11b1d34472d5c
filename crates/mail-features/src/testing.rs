//! Helpers for tests of dialogues.

use crate::login::MailLogin;
use crate::protocol::{Dialogue, DialogueContext, DialogueStep, Next, NextStep, Starttls};

pub fn dialogue_context<'a>(
    login: &'a mut MailLogin,
    starttls: Starttls,
    notes: &'a mut Vec<String>,
) -> DialogueContext<'a> {
    DialogueContext { login, starttls, notes }
}

/// Runs a dialogue; returns all answers, `<AUTH user password>` for a login, and the reason for the end.
pub fn run_pieces(dialogue: &mut dyn Dialogue, login: &mut MailLogin, starttls: Starttls, pieces: &[&[u8]]) -> String {
    let (mut input, mut out, mut notes) = (Vec::new(), String::new(), Vec::new());
    'pieces: for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let DialogueStep { consumed, then } =
                dialogue.step(&input, &mut dialogue_context(login, starttls, &mut notes));
            assert!(consumed <= input.len());
            let (bytes, next) = match then {
                NextStep::More => {
                    assert_eq!(consumed, 0);
                    break;
                }
                NextStep::Reply(reply) => (String::from_utf8(reply.bytes).expect("text"), reply.next),
                NextStep::Authenticate => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let password = login.password.as_deref().map_or("-".into(), text);
                    (format!("<AUTH {} {} {password}>", login.method.name(), text(&login.user)), Next::Go)
                }
            };
            assert!(consumed > 0 || bytes == "+ OK\r\n", "every answer takes something");
            input.drain(..consumed);
            out += &bytes;
            match next {
                Next::Go => {}
                Next::Quit => {
                    out += "<QUIT>";
                    break 'pieces;
                }
                Next::StartTls => {
                    out += "<TLS>";
                    break 'pieces;
                }
            }
        }
    }
    out
}

/// At once, cut at every place, and byte by byte.
pub fn at_every_cut(make: &dyn Fn() -> Box<dyn Dialogue>, starttls: Starttls, input: &[u8]) -> String {
    let once = |pieces: &[&[u8]]| {
        let mut login = MailLogin { salt: b"<1.2@host>".to_vec(), ..MailLogin::default() };
        run_pieces(&mut *make(), &mut login, starttls, pieces)
    };
    let whole = once(&[input]);
    for at in 0..=input.len() {
        let (head, tail) = input.split_at(at);
        assert_eq!(once(&[head, tail]), whole, "cut at {at}");
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(once(&bytes), whole, "in single bytes");
    whole
}
