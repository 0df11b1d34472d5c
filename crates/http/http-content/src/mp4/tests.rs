//! Tests with generated films of one track.

use super::rebuild::{Cut, Rebuilt, rebuild_film};
use super::times;
use crate::shared::film::boxes::{inner_boxes, write_box};
use crate::shared::film::{Film, parse_milliseconds};
use bytes::Bytes;

/// Ten one-second samples of 1 to 10 bytes, three per chunk, every fourth a key frame. `first`: tables before data.
pub(super) fn film(first: bool, uniform: bool) -> Vec<u8> {
    let data: Vec<u8> = (0..10u8).flat_map(|n| vec![b'a' + n; if uniform { 4 } else { usize::from(n) + 1 }]).collect();
    let mut out = Vec::new();
    write_box(&mut out, b"ftyp", |out| out.extend_from_slice(b"isom"));
    let tables = |at: u32| {
        let mut out = Vec::new();
        write_box(&mut out, b"moov", |out| movie(out, at, uniform));
        out
    };
    let before = out.len() + if first { tables(0).len() } else { 0 };
    let tables = tables(before as u32 + 8);
    if first {
        out.extend_from_slice(&tables);
    }
    write_box(&mut out, b"mdat", |out| out.extend_from_slice(&data));
    if !first {
        out.extend_from_slice(&tables);
    }
    out
}

fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
}

fn movie(out: &mut Vec<u8>, data: u32, uniform: bool) {
    write_box(out, b"mvhd", |out| {
        numbers(out, &[0, 0, 0, 1000, 10_000]);
        out.extend_from_slice(&[0; 80]);
    });
    write_box(out, b"trak", |out| {
        write_box(out, b"tkhd", |out| {
            numbers(out, &[0, 0, 0, 1, 0, 10_000]);
            out.extend_from_slice(&[0; 60]);
        });
        write_box(out, b"mdia", |out| {
            write_box(out, b"mdhd", |out| numbers(out, &[0, 0, 0, 10, 100, 0]));
            write_box(out, b"minf", |out| {
                write_box(out, b"stbl", |out| {
                    write_box(out, b"stts", |out| numbers(out, &[0, 2, 4, 10, 6, 10]));
                    write_box(out, b"stss", |out| numbers(out, &[0, 3, 1, 5, 9]));
                    write_box(out, b"stsc", |out| numbers(out, &[0, 2, 1, 3, 1, 4, 1, 1]));
                    let places: Vec<u32> = match uniform {
                        true => {
                            write_box(out, b"stsz", |out| numbers(out, &[0, 4, 10]));
                            vec![0, 12, 24, 36]
                        }
                        false => {
                            write_box(out, b"stsz", |out| numbers(out, &[0, 0, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
                            vec![0, 6, 21, 45]
                        }
                    };
                    write_box(out, b"stco", |out| {
                        numbers(out, &[0, 4]);
                        places.iter().for_each(|place| numbers(out, &[place + data]));
                    });
                });
            });
        });
    });
}

/// Cuts a film and plays it: samples with their seconds.
fn play(file: &[u8], start: u64, end: u64, key_frame: bool) -> Result<String, String> {
    let film =
        Film { name: "film".into(), size: file.len() as u64, content: Some(Bytes::copy_from_slice(file)), file: None };
    let length = end.saturating_sub(start);
    let out = match rebuild_film(&film, &Cut { start, length, key_frame, tables_max: 10_000 })? {
        Rebuilt::AsItIs => return Ok("as it is".into()),
        Rebuilt::New { head, start, length } => [&head, &file[start as usize..(start + length) as usize]].concat(),
    };
    let find = |data: &[u8], path: &[&[u8; 4]]| {
        path.iter().fold(data.to_vec(), |data, name| {
            let boxes = inner_boxes(&data, "").expect("boxes");
            boxes.iter().find(|(other, _)| other == *name).expect("the box").1.to_vec()
        })
    };
    let table = |name: &[u8; 4], columns: usize| {
        let data = find(&out, &[b"moov", b"trak", b"mdia", b"minf", b"stbl", name]);
        let words: Vec<u32> = data.chunks(4).map(|w| u32::from_be_bytes(w.try_into().expect("four"))).collect();
        assert!(columns == 0 || words.len() == 2 + columns * words[1] as usize, "{words:?}");
        words
    };
    let (chunks, runs, sizes) = (table(b"stco", 1), table(b"stsc", 3), table(b"stsz", 0));
    let times = table(b"stts", 2);
    assert_eq!(times.iter().skip(2).step_by(2).sum::<u32>(), sizes[2], "samples that are shown, and that are there");
    let (mut text, mut sample) = (String::new(), 0);
    for (index, place) in chunks[2..].iter().enumerate() {
        let run = runs[2..].chunks(3).take_while(|run| run[0] as usize <= index + 1).last().expect("a run");
        let mut at = *place as usize;
        for _ in 0..run[1] {
            let size = if sizes[1] != 0 { sizes[1] } else { sizes[3 + sample] } as usize;
            let bytes = &out[at..at + size];
            assert!(bytes.iter().all(|c| *c == bytes[0]), "{}", bytes.escape_ascii());
            text.push(char::from(bytes[0]));
            at += size;
            sample += 1;
        }
    }
    assert_eq!(sample, sizes[2] as usize);
    Ok(text)
}

#[test]
fn films_are_cut() {
    for (first, uniform) in [(true, false), (false, false), (true, true), (false, true)] {
        let film = film(first, uniform);
        let play = |start: u64, end: u64| play(&film, start, end, false).expect("a film");
        assert_eq!(play(0, 0), if first { "as it is" } else { "abcdefghij" });
        for start in 0..10u64 {
            let all = "abcdefghij";
            assert_eq!(play(start * 1000, 0), if start == 0 && first { "as it is" } else { &all[start as usize..] });
            for end in start + 1..=10 {
                assert_eq!(play(start * 1000, end * 1000), all[start as usize..end as usize], "{start} to {end}");
            }
        }
        assert_eq!(play(2_700, 5_999), "cde", "the length of 3.2 seconds counts from the sample on");
    }
}

#[test]
fn a_key_frame_comes_first() {
    let film = film(true, false);
    assert_eq!(play(&film, 6000, 8000, true).as_deref(), Ok("efgh"));
    assert_eq!(play(&film, 4000, 5000, true).as_deref(), Ok("e"));
}

#[test]
fn faulty_films_are_named_in_the_log() {
    let whole = film(true, false);
    for (file, words) in [
        (&whole[..whole.len() - 1], "mp4 atom too large"),
        (&whole[..20], "mp4 atom too large"),
        (b"\0\0\0\x07free", "mp4 atom is too small:7"),
        (b"\0\0", "truncated"),
        (b"", "no mp4 trak atoms"),
        (b"\0\0\0\x10moov\0\0\0\x08trak", "no mp4 mdat atom"),
        (b"\0\0\0\x10moov\0\0\0\x08cmov", "cmov"),
        (b"\0\0\x7f\x08free", "mp4 atom too large"),
    ] {
        let error = play(file, 1000, 0, false).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
    assert!(play(&whole, 11_000, 0, false).expect_err("late").contains("start time exceeds file duration"));
    assert!(play(&whole, 10_000, 0, false).is_err(), "its only track is over");
    let large = Cut { start: 1, length: 0, key_frame: false, tables_max: 10 };
    let film = Film { name: "film".into(), size: whole.len() as u64, content: Some(whole.into()), file: None };
    assert!(rebuild_film(&film, &large).expect_err("large").contains("you may want to increase mp4_max_buffer_size"));
}

#[test]
fn arguments_of_time_are_parsed() {
    for (text, value) in
        [("1", Some(1000)), ("1.5", Some(1500)), ("0.12345", Some(123)), (".5", Some(500)), ("1.", Some(1000))]
    {
        assert_eq!(parse_milliseconds(text.as_bytes()), value, "{text}");
    }
    for text in ["", "-1", "1.2.3", "x", "99999999999999999999", "9999999999999999999"] {
        assert_eq!(parse_milliseconds(text.as_bytes()), None, "{text}");
    }
    for (args, want) in [
        ("", None),
        ("start=x", None),
        ("end=0", None),
        ("start=1", Some((1000, 0))),
        ("end=2", Some((0, 2000))),
        ("start=1&end=2.5", Some((1000, 1500))),
        ("start=2&end=1", Some((2000, 0))),
    ] {
        assert_eq!(times(args.as_bytes()), want, "{args}");
    }
}

#[test]
fn films_with_wrong_bytes_are_cut_or_refused() {
    let mut state = testkit::Random::new(0x2545_f491_4f6c_dd1d);
    let mut next = move |below: usize| state.below(below);
    for round in 0..20_000 {
        let mut input =
            [&[next(256) as u8, next(256) as u8, next(2) as u8, 0], film(round % 2 == 0, round % 4 < 2).as_slice()]
                .concat();
        for _ in 0..next(4) {
            let at = next(input.len());
            input[at] = [0, 1, 2, 0x7f, 0xff, next(256) as u8][next(6)];
        }
        super::fuzzing::mp4(&input);
    }
}
