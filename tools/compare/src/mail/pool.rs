//! Directives of the mail area, and where they may stand.

/// Block or servers that a directive is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailPlace {
    Mail,
    /// All servers of a protocol.
    Imap,
    Pop3,
    Smtp,
}

pub struct MailFragment {
    pub text: &'static str,
    pub places: &'static [MailPlace],
}

use MailPlace::{Imap, Mail, Pop3, Smtp};

const ANY: &[MailPlace] = &[Mail, Imap, Pop3, Smtp];
const IMAP: &[MailPlace] = &[Mail, Imap];
const POP3: &[MailPlace] = &[Mail, Pop3];
const SMTP: &[MailPlace] = &[Mail, Smtp];
const SERVERS: &[MailPlace] = &[Imap, Pop3, Smtp];

/// `AUTH` is the authentication server's port, `DIR` the server's folder.
const POOL: &[(&str, &[MailPlace])] = &[
    ("imap_auth plain login cram-md5 external;", IMAP),
    ("imap_auth cram-md5;", IMAP),
    ("imap_auth external;", IMAP),
    ("imap_auth apop;", IMAP),
    ("imap_capabilities IMAP4 'X-A B' IDLE;", IMAP),
    ("imap_client_buffer 64;", IMAP),
    ("imap_client_buffer 1k;", IMAP),
    ("pop3_auth plain apop cram-md5 external;", POP3),
    ("pop3_auth apop;", POP3),
    ("pop3_auth cram-md5;", POP3),
    ("pop3_auth external;", POP3),
    ("pop3_auth login;", POP3),
    ("pop3_capabilities TOP 'X A';", POP3),
    ("pop3_capabilities TOP USER UIDL;", POP3),
    ("pop3_capabilities user Stls SASL;", POP3),
    ("smtp_auth none;", SMTP),
    ("smtp_auth none plain;", SMTP),
    ("smtp_auth plain login cram-md5 external;", SMTP),
    ("smtp_auth cram-md5;", SMTP),
    ("smtp_auth external;", SMTP),
    ("smtp_capabilities 'SIZE 10240000' 8BITMIME;", SMTP),
    ("smtp_capabilities PIPELINING;", SMTP),
    ("smtp_client_buffer 64;", SMTP),
    ("smtp_client_buffer 1k;", SMTP),
    ("smtp_greeting_delay 150ms;", SMTP),
    ("auth_http_header X-Key 'a b';", ANY),
    ("auth_http_header X-Key c; auth_http_header X-More d;", ANY),
    ("auth_http_timeout 5s;", ANY),
    ("auth_http 127.0.0.1:AUTH/other?x=y;", ANY),
    ("auth_http http://127.0.0.1:AUTH;", ANY),
    ("auth_http 127.0.0.1:1/refused;", ANY),
    ("auth_http unix:DIR/none.sock:/refused;", ANY),
    ("auth_http_pass_client_cert on;", ANY),
    ("proxy off;", ANY),
    ("proxy_buffer 64;", ANY),
    ("proxy_buffer 1k;", ANY),
    ("proxy_timeout 5s;", ANY),
    ("proxy_pass_error_message on;", ANY),
    ("proxy_protocol on;", ANY),
    ("proxy_protocol v2;", ANY),
    ("proxy_smtp_auth on;", SMTP),
    ("xclient off;", SMTP),
    ("xclient off; proxy_smtp_auth on;", SMTP),
    ("timeout 5s;", ANY),
    ("max_errors 1;", ANY),
    ("max_errors 2;", ANY),
    ("max_errors 0;", ANY),
    ("starttls on;", ANY),
    ("starttls on;", ANY),
    ("starttls only;", ANY),
    ("server_name mail.example;", ANY),
    ("server_name 'a b';", ANY),
    ("server_name '';", ANY),
    ("set_real_ip_from 127.0.0.0/8;", ANY),
    ("set_real_ip_from 127.2.0.0/16; set_real_ip_from unix:;", ANY),
    ("ssl_protocols TLSv1.2;", ANY),
    ("ssl_protocols TLSv1.3;", ANY),
    ("ssl_verify_client on; ssl_client_certificate DIR/one.crt;", ANY),
    ("ssl_verify_client optional; ssl_client_certificate DIR/one.crt;", ANY),
    ("ssl_verify_client optional_no_ca;", ANY),
    ("ssl_verify_client optional_no_ca; auth_http_pass_client_cert on;", ANY),
    ("ssl_session_tickets off;", ANY),
    ("ssl_session_cache shared:one:1m;", ANY),
    ("ssl_certificate DIR/none.crt;", ANY),
    ("error_log DIR/error.log error;", ANY),
    ("error_log DIR/error.log warn;", ANY),
    ("error_log DIR/other.log info;", ANY),
    ("listen 127.0.0.2:PORT;", SERVERS),
    ("protocol nntp;", SERVERS),
];

/// Directives that contain the text.
pub fn mail_fragments(text: Option<&str>) -> Vec<MailFragment> {
    let of = |(text, places): &(&'static str, &'static [MailPlace])| MailFragment { text, places };
    let mut all: Vec<MailFragment> = POOL.iter().map(of).collect();
    all.retain(|fragment| text.is_none_or(|text| fragment.text.contains(text)));
    all
}
