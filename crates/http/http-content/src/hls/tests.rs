//! Tests with generated films of a video and a sound track.

use super::fragment::{HlsFragment, Range, write_fragment};
use super::fuzzing::hls;
use super::movie::Movie;
use super::timeline::fragment_borders;
use super::ts::PACKET_BYTES;
use super::{Hls, HlsContent, HlsQuery, ResultInterest, answer};
use crate::shared::film::Film;
use crate::shared::film::boxes::write_box;
use std::sync::Arc;

fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
}

/// Picture of an index as a sample: every fourth is a key frame.
fn picture(index: u8) -> Vec<u8> {
    let kind = if index.is_multiple_of(4) { 0x65 } else { 0x41 };
    [&[0, 0, 0, 2, kind, index + 1][..], &[0, 0, 0, 1, 0x41]].concat()
}

/// Ten pictures of a second each, shown half a second later except every third (two seconds later), and 25 frames of sound of 0.4
/// seconds.
fn film(wanted: &[&str]) -> Vec<u8> {
    let pictures: Vec<Vec<u8>> = (0..10).map(picture).collect();
    let frames: Vec<Vec<u8>> = (0..25).map(|n| vec![b'A' + n; usize::from(n) + 1]).collect();
    let mut out = Vec::new();
    write_box(&mut out, b"ftyp", |out| out.extend_from_slice(b"isom"));
    let at = out.len() as u32 + 8;
    write_box(&mut out, b"mdat", |out| out.extend_from_slice(&[pictures.concat(), frames.concat()].concat()));
    let sound_at = at + pictures.concat().len() as u32;
    write_box(&mut out, b"moov", |out| {
        write_box(out, b"mvhd", |out| {
            numbers(out, &[0, 0, 0, 1000, 10_000]);
            out.extend_from_slice(&[0; 80]);
        });
        if wanted.contains(&"video") {
            let offsets: Vec<u32> = (0..10).flat_map(|n| [1, if n % 3 == 2 { 200 } else { 50 }]).collect();
            track(out, at, &pictures, [100, 100], &[1, 5, 9], &offsets, 50, |out| {
                write_box(out, b"avc1", |out| {
                    out.extend_from_slice(&[0; 78]);
                    write_box(out, b"avcC", |out| {
                        out.extend_from_slice(&[1, 66, 0, 10, 0xff, 0xe1, 0, 2, 0x67, 7, 1, 0, 2, 0x68, 8]);
                    });
                });
            });
        }
        if wanted.contains(&"sound") {
            track(out, sound_at, &frames, [1000, 400], &[], &[], 0, |out| {
                write_box(out, b"mp4a", |out| {
                    out.extend_from_slice(&[0; 28]);
                    write_box(out, b"esds", |out| {
                        let config = [5, 2, 0x12, 0x10];
                        let decoder = [&[4, 17, 0x40, 0x15][..], &[0; 11], &config].concat();
                        out.extend_from_slice(&[&[0, 0, 0, 0, 3, 22, 0, 1, 0][..], &decoder].concat());
                    });
                });
            });
        }
    });
    out
}

/// Writes a track with two samples per chunk. `[scale, duration]`; `start`: media time of the edit.
#[allow(clippy::too_many_arguments, reason = "tables of a track")]
fn track(
    out: &mut Vec<u8>,
    mut at: u32,
    samples: &[Vec<u8>],
    [scale, duration]: [u32; 2],
    keys: &[u32],
    offsets: &[u32],
    start: u32,
    entry: impl FnOnce(&mut Vec<u8>),
) {
    write_box(out, b"trak", |out| {
        write_box(out, b"edts", |out| write_box(out, b"elst", |out| numbers(out, &[0, 1, 0, start, 0x1_0000])));
        write_box(out, b"mdia", |out| {
            write_box(out, b"mdhd", |out| numbers(out, &[0, 0, 0, scale, 0, 0]));
            write_box(out, b"minf", |out| {
                write_box(out, b"stbl", |out| {
                    write_box(out, b"stsd", |out| {
                        numbers(out, &[0, 1]);
                        entry(out);
                    });
                    write_box(out, b"stts", |out| numbers(out, &[0, 1, samples.len() as u32, duration]));
                    if !offsets.is_empty() {
                        write_box(out, b"ctts", |out| {
                            numbers(out, &[0, offsets.len() as u32 / 2]);
                            numbers(out, offsets);
                        });
                    }
                    if !keys.is_empty() {
                        write_box(out, b"stss", |out| {
                            numbers(out, &[0, keys.len() as u32]);
                            numbers(out, keys);
                        });
                    }
                    let last = samples.len() as u32 / 2 + 1;
                    write_box(out, b"stsc", |out| match samples.len() % 2 {
                        0 => numbers(out, &[0, 1, 1, 2, 1]),
                        _ => numbers(out, &[0, 2, 1, 2, 1, last, 1, 1]),
                    });
                    write_box(out, b"stsz", |out| {
                        numbers(out, &[0, 0, samples.len() as u32]);
                        samples.iter().for_each(|sample| numbers(out, &[sample.len() as u32]));
                    });
                    write_box(out, b"stco", |out| {
                        numbers(out, &[0, samples.len().div_ceil(2) as u32]);
                        for pair in samples.chunks(2) {
                            numbers(out, &[at]);
                            at += pair.concat().len() as u32;
                        }
                    });
                });
            });
        });
    });
}

fn opened(bytes: Vec<u8>) -> Arc<Film> {
    Arc::new(Film { name: "film".into(), size: bytes.len() as u64, content: Some(bytes.into()), file: None })
}

const KIND: Hls = Hls { bytes_max: 1 << 20, forward_args: true, length: 3000, tables_max: 1 << 20 };

fn playlist(film: &Arc<Film>, args: &str) -> String {
    let asked = HlsQuery::Playlist(KIND.playlist(b"a b.mp4", args.as_bytes()));
    match answer(film, 1 << 20, &asked, &ResultInterest::ALWAYS) {
        Ok(HlsContent::Whole(bytes)) => String::from_utf8(bytes).expect("text"),
        Ok(HlsContent::Long(..)) => panic!("a fragment"),
        Err(fault) => panic!("{fault}"),
    }
}

/// A part of a stream: presentation and decoding in milliseconds of the film, and the data.
type StreamPart = (i64, i64, Vec<u8>);

/// Reads the parts of a stream from transport packets, whose counters continue from `count`.
fn parts(packets: &[u8], pid: u16, count: &mut u8) -> Vec<StreamPart> {
    let mut units: Vec<Vec<u8>> = Vec::new();
    for packet in packets.chunks(PACKET_BYTES) {
        assert_eq!((packet[0], packet.len()), (0x47, PACKET_BYTES));
        if u16::from_be_bytes([packet[1], packet[2]]) & 0x1fff != pid {
            continue;
        }
        assert_eq!(packet[3] & 15, *count % 16);
        *count = (*count + 1) % 16;
        if packet[1] & 0x40 != 0 {
            units.push(Vec::new());
        }
        let fill = if packet[3] & 0x20 != 0 { usize::from(packet[4]) + 1 } else { 0 };
        units.last_mut().expect("a start").extend_from_slice(&packet[4 + fill..]);
    }
    let time = |b: &[u8]| {
        let ticks = i64::from(b[0] >> 1 & 7) << 30
            | i64::from(b[1]) << 22
            | i64::from(b[2] >> 1) << 15
            | i64::from(b[3]) << 7
            | i64::from(b[4] >> 1);
        ticks / 90 - 10_000
    };
    let unit = |unit: Vec<u8>| {
        let head = 9 + usize::from(unit[8]);
        let pts = time(&unit[9..]);
        (pts, if unit[7] & 0x40 != 0 { time(&unit[14..]) } else { pts }, unit[head..].to_vec())
    };
    units.into_iter().map(unit).collect()
}

#[test]
fn playlists_divide_at_key_frames() {
    let both = opened(film(&["video", "sound"]));
    let head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:4\n#EXT-X-PLAYLIST-TYPE:VOD\n";
    let rows = |rows: &str| format!("{head}{rows}#EXT-X-ENDLIST\n");
    // The key frames are shown at 0, 4 and 9.5 seconds.
    assert_eq!(
        playlist(&both, ""),
        rows(
            "#EXTINF:4.000,\na%20b.mp4.ts?start=0.000&end=4.000\n#EXTINF:5.500,\na%20b.mp4.ts?start=4.000&end=9.500\n\
             #EXTINF:1.000,\na%20b.mp4.ts?start=9.500&end=10.500\n"
        )
        .replace("DURATION:4", "DURATION:6")
    );
    assert_eq!(
        playlist(&both, "a=1&start=4&len=20&b&end=9.25&offset=-1.5"),
        rows("#EXT-X-START:TIME-OFFSET=-1.500\n#EXTINF:5.250,\na%20b.mp4.ts?start=4.000&end=9.250&a=1&b\n")
            .replace("DURATION:4", "DURATION:6")
    );
    let sound = opened(film(&["sound"]));
    assert_eq!(
        playlist(&sound, "len=4&start=1"),
        rows(
            "#EXTINF:4.000,\na%20b.mp4.ts?start=1.000&end=5.000\n#EXTINF:4.000,\na%20b.mp4.ts?start=5.000&end=9.000\n\
             #EXTINF:1.000,\na%20b.mp4.ts?start=9.000&end=10.000\n"
        )
    );
    assert_eq!(playlist(&sound, "start=10"), rows("").replace("DURATION:4", "DURATION:1"));
}

#[test]
fn fragments_have_each_sample_once() {
    for wanted in [&["video", "sound"][..], &["video"], &["sound"]] {
        let film = opened(film(wanted));
        let movie = Movie::of(&film, 1 << 20).expect("a film");
        for length in [1000, 1300, 3000, 5000, 20_000] {
            let borders = fragment_borders(&movie, 0, None, length, "film").expect("borders");
            let (mut pictures, mut frames, mut counts) = (Vec::new(), Vec::new(), [0; 2]);
            for pair in borders.windows(2) {
                let range = Range { start: pair[0], end: pair[1], bytes_max: 1 << 20 };
                let packets = write_fragment(&film, &movie, range).expect("a fragment");
                // Pieces of any length are the same stream, also the second time.
                let mut first = HlsFragment::new(&film, &movie, range).expect("a fragment");
                let mut second = first.again();
                for (one, bytes) in [(&mut first, 1), (&mut second, 500)] {
                    let pieces =
                        std::iter::from_fn(|| Some(one.write(bytes).expect("a piece")).filter(|p| !p.is_empty()));
                    assert_eq!(pieces.collect::<Vec<_>>().concat(), packets);
                }
                let (first, second) = (parts(&packets, 0x100, &mut counts[0]), parts(&packets, 0x101, &mut counts[1]));
                let (video, sound) = if wanted.contains(&"video") { (first, second) } else { (second, first) };
                assert!(
                    video.first().is_none_or(|(_, _, data)| data.contains(&0x67)),
                    "a fragment begins with parameter sets"
                );
                pictures.extend(video);
                frames.extend(sound);
            }
            if wanted.contains(&"video") {
                let start = &[0, 0, 0, 1, 9, 0xf0][..];
                let wanted = (0..10u8).map(|n| {
                    let sets: &[u8] = if n % 4 == 0 { &[0, 0, 0, 1, 0x67, 7, 0, 0, 0, 1, 0x68, 8] } else { &[] };
                    let dts = i64::from(n) * 1000 - 500;
                    let pts = dts + if n % 3 == 2 { 2000 } else { 500 };
                    let kind = if n % 4 == 0 { 0x65 } else { 0x41 };
                    (pts, dts, [start, sets, &[0, 0, 0, 1, kind, n + 1, 0, 0, 0, 1, 0x41]].concat())
                });
                assert_eq!(pictures, wanted.collect::<Vec<_>>(), "{length}");
            }
            if wanted.contains(&"sound") {
                let wanted = (0..25u8).map(|n| {
                    let size = usize::from(n) + 1;
                    let head = [0xff, 0xf1, 0x50, 0x80, ((size + 7) >> 3) as u8, ((size + 7) << 5) as u8 | 0x1f, 0xfc];
                    (i64::from(n) * 400, i64::from(n) * 400, [&head[..], &vec![b'A' + n; size]].concat())
                });
                assert_eq!(frames, wanted.collect::<Vec<_>>(), "{length}");
            }
        }
    }
}

#[test]
fn faults_are_named() {
    let asked = || HlsQuery::Fragment(Range { start: 0, end: 5000, bytes_max: 1000 });
    let fails = |bytes: Vec<u8>, max: u64| {
        answer(&opened(bytes), max, &asked(), &ResultInterest::ALWAYS).err().expect("a fault")
    };
    let both = film(&["video", "sound"]);
    assert!(fails(both.clone(), 1 << 20).contains("you may want to increase hls_buffers"));
    assert!(fails(both.clone(), 100).contains("you may want to increase hls_mp4_max_buffer_size"));
    assert_eq!(fails(film(&[]), 1 << 20), "no tracks of H.264, AAC or MP3 were found in \"film\"");
    assert_eq!(fails(b"no film at all".to_vec(), 1), "\"film\" mp4 atom too large:1852776542");
    // With each part missing, and each byte changed.
    for end in 0..both.len() {
        hls(&both[..end]);
    }
    for at in 0..both.len() {
        for change in [1, 0x7f, 0x80, 0xff] {
            let mut bytes = both.clone();
            bytes[at] ^= change;
            hls(&bytes);
        }
    }
}
