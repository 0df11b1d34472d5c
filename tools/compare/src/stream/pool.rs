//! Directives of the stream area, and where they may stand.

/// Where a directive is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPlace {
    Stream,
    Group,
    /// A server that passes to a group.
    Proxy,
    /// One that requires a PROXY protocol header.
    Behind,
    /// One that answers itself.
    Return,
    /// Datagrams that are passed on, and answered.
    Datagrams,
    Answers,
}

impl StreamPlace {
    /// The last number of its server's address.
    pub fn host(self) -> u8 {
        match self {
            StreamPlace::Proxy => 2,
            StreamPlace::Behind => 3,
            StreamPlace::Return => 4,
            StreamPlace::Datagrams => 5,
            StreamPlace::Answers => 6,
            StreamPlace::Stream | StreamPlace::Group => 1,
        }
    }
}

pub struct StreamFragment {
    pub text: &'static str,
    pub places: &'static [StreamPlace],
}

use StreamPlace::{Answers, Behind, Datagrams, Group, Proxy, Return, Stream};

const TOP: &[StreamPlace] = &[Stream];
const GROUP: &[StreamPlace] = &[Group];
const ANY: &[StreamPlace] = &[Stream, Proxy, Behind, Return, Datagrams, Answers];
const SERVERS: &[StreamPlace] = &[Proxy, Behind, Return, Datagrams, Answers];
const PROXIES: &[StreamPlace] = &[Stream, Proxy, Behind, Datagrams];
const TCP: &[StreamPlace] = &[Stream, Proxy, Behind, Return];
const TCP_PROXIES: &[StreamPlace] = &[Proxy, Behind];

/// Left out on purpose: a `proxy_pass` without a port, whose line nginx names, where Tidegate names its server's;
/// `proxy_buffer_size` for datagrams, which nginx truncates; `map_hash_bucket_size`, which nginx takes for a duplicate
/// after a `map`; `set` with `$bytes_received`, whose first value nginx keeps for the log; an undeclared zone, for which nginx names no line; invalid rates, which nginx detects before or after
/// the client's first bytes.
const POOL: &[(&str, &[StreamPlace])] = &[
    ("map $remote_addr $v { default d; 127.0.0.1 local; 10.1.2.3 far; }", TOP),
    ("map $server_addr $w { ~^127\\.0\\.0\\.(?<last>\\d)$ \"last-$last\"; default none; }", TOP),
    ("map $proxy_protocol_addr:$server_port $v { volatile; ~^10\\.(\\d+) $1; : empty; default other; }", TOP),
    ("map $server_name $v { hostnames; .example site; *.other star; \"\" empty; default d; }", TOP),
    ("map $ssl_preread_server_name $w { hostnames; a.example hello; default no; }", TOP),
    ("map $v $w { v of-v; default $v$v; }", TOP),
    ("map $v $w { v 1; v 2; }", TOP),
    ("geo $v { default d; 127.0.0.0/8 loop; 127.0.0.1 one; 10.0.0.0/8 ten; 2001:db8::/32 six; }", TOP),
    ("geo $proxy_protocol_addr $w { 10.1.0.0/16 ten; ::/0 six; default none; delete 10.1.0.0/16; }", TOP),
    ("geo $w { ranges; default d; 10.0.0.0-10.255.255.255 ten; 127.0.0.0-127.0.0.255 loop; }", TOP),
    ("geo $w { 10.1.2.3/8 low; 300.1.1.1 bad; }", TOP),
    ("geo $w { proxy 127.0.0.1; default d; }", TOP),
    ("split_clients $server_addr $v { 40% a; 30.5% b; * c; }", TOP),
    ("split_clients \"$remote_addr$protocol\" $w { 99% most; 0.5% few; }", TOP),
    ("split_clients $v $w { 80% a; 30% b; }", TOP),
    ("log_format all '$v';", TOP),
    ("limit_conn_zone $v zone=one:1m;", TOP),
    ("limit_conn_zone $v zone=three:1k;", TOP),
    ("upstream group { server 127.0.0.1:1; }", TOP),
    ("upstream empty { }", TOP),
    ("variables_hash_max_size 512;", TOP),
    ("resolver 127.0.0.1:1;", ANY),
    ("resolver_timeout 100ms;", ANY),
    ("allow 127.0.0.1;", ANY),
    ("deny 127.0.0.1;", ANY),
    ("deny all;", ANY),
    ("deny 10.0.0.0/8;", ANY),
    ("allow 2001:db8::/32;", ANY),
    ("allow unix:;", ANY),
    ("deny 127.0.0.1/8;", ANY),
    ("deny nonsense;", ANY),
    ("set $v set;", SERVERS),
    ("set $w \"$server_addr-$v\";", SERVERS),
    ("set $own $remote_port;", SERVERS),
    ("set $remote_addr x;", SERVERS),
    ("limit_conn one 1;", ANY),
    ("limit_conn two 1;", ANY),
    ("limit_conn one 0;", ANY),
    ("limit_conn_log_level info;", ANY),
    ("limit_conn_dry_run on;", ANY),
    ("set_real_ip_from 127.0.0.1;", ANY),
    ("set_real_ip_from 127.0.0.0/8;", ANY),
    ("set_real_ip_from 10.0.0.0/8;", ANY),
    ("set_real_ip_from unix:;", ANY),
    ("set_real_ip_from nonsense;", ANY),
    ("ssl_preread on;", TCP),
    ("ssl_preread off;", TCP),
    ("preread_buffer_size 4;", ANY),
    ("preread_buffer_size 1k;", ANY),
    ("preread_timeout 100ms;", ANY),
    ("proxy_protocol_timeout 2s;", ANY),
    ("tcp_nodelay off;", ANY),
    ("access_log off;", ANY),
    ("access_log DIR/access.log all if=$proxy_protocol_addr;", ANY),
    ("access_log DIR/access.log nothing;", ANY),
    ("access_log DIR/access.log all buffer=4k flush=1s;", ANY),
    ("log_format more '$v';", ANY),
    ("error_log DIR/error.log error;", ANY),
    ("error_log DIR/error.log warn;", ANY),
    ("server_name again.example;", SERVERS),
    ("server_name ~^a;", SERVERS),
    ("server_name \"\";", SERVERS),
    ("return \"short $v\";", SERVERS),
    ("return \"\";", SERVERS),
    ("return;", SERVERS),
    ("pass 127.0.0.4:PORT;", TCP_PROXIES),
    ("pass 127.0.0.1:1;", TCP_PROXIES),
    ("pass $v;", TCP_PROXIES),
    ("proxy_pass 127.0.0.1:1;", &[Behind, Return]),
    ("proxy_pass $v;", &[Return]),
    ("proxy_pass group;", &[Return, Behind]),
    ("proxy_half_close on;", &[Stream, Proxy]),
    ("proxy_half_close off;", &[Stream, Proxy]),
    ("proxy_buffer_size 1;", TCP_PROXIES),
    ("proxy_buffer_size 64k;", TCP_PROXIES),
    ("proxy_download_rate 1m;", PROXIES),
    ("proxy_upload_rate 10m;", PROXIES),
    ("proxy_next_upstream off;", PROXIES),
    ("proxy_next_upstream_tries 1;", PROXIES),
    ("proxy_next_upstream_timeout 2s;", PROXIES),
    ("proxy_connect_timeout 1s;", PROXIES),
    ("proxy_timeout 900ms;", PROXIES),
    ("proxy_socket_keepalive on;", PROXIES),
    ("proxy_protocol on;", PROXIES),
    ("proxy_protocol off;", PROXIES),
    ("proxy_protocol maybe;", PROXIES),
    ("proxy_bind 127.0.0.9;", PROXIES),
    ("proxy_bind $server_addr;", PROXIES),
    ("proxy_bind off;", PROXIES),
    ("proxy_bind nonsense;", PROXIES),
    ("proxy_requests 1;", &[Stream, Datagrams]),
    ("proxy_responses 1;", &[Stream]),
    ("hash $remote_addr;", GROUP),
    ("hash $v consistent;", GROUP),
    ("hash \"\";", GROUP),
    ("least_conn;", GROUP),
    ("random;", GROUP),
    ("random two least_conn;", GROUP),
    ("random three;", GROUP),
    ("zone group 64k;", GROUP),
    ("zone group 1k;", GROUP),
    ("server 127.0.0.1:BACKEND weight=3;", GROUP),
    ("server 127.0.0.1:BACKEND backup;", GROUP),
    ("server 127.0.0.1:BACKEND down;", GROUP),
    ("server 127.0.0.1:BACKEND max_conns=1 max_fails=0;", GROUP),
    ("server 127.0.0.1:1 backup;", GROUP),
    ("server 127.0.0.1;", GROUP),
    ("server 127.0.0.1:BACKEND weight=0;", GROUP),
    ("listen 127.0.0.7:PORT;", SERVERS),
    ("listen 127.0.0.7:PORT bogus;", SERVERS),
    ("listen 127.0.0.4:PORT;", &[Return, Proxy]),
    ("listen 127.0.0.7:PORT backlog=8 so_keepalive=on;", SERVERS),
    ("listen 127.0.0.8:PORT udp;", &[Proxy, Return]),
    ("bogus on;", ANY),
];

/// Those that hold a text.
pub fn stream_fragments(only: Option<&str>) -> Vec<StreamFragment> {
    POOL.iter()
        .filter(|(text, _)| only.is_none_or(|only| text.contains(only)))
        .map(|(text, places)| StreamFragment { text, places })
        .collect()
}
