//! Images in messages and raw prompts, without an image decoded: what is taken out, where it
//! goes, what is refused.

use super::super::error::RequestErrorKind;
use super::*;
use crate::text::tokenizer::Specials;

const VISION: VisionFacts = VisionFacts { token_px: 32, min_tokens: 8, max_tokens: 64 };

fn image(shade: u8, width: u32, height: u32) -> Arc<Image> {
    let pixels = Rgb { width, height, data: vec![shade; (width * height * 3) as usize] };
    Arc::new(finish(pixels, &VISION, Detail::Full, 16).unwrap())
}

fn taken(messages: Value) -> (Result<Taken, RequestError>, Value) {
    let Value::Array(mut messages) = messages else { panic!("a list") };
    let taken = take_from_messages(&mut messages);
    (taken, messages.into())
}

fn user(parts: Value) -> Value {
    json!([{ "role": "user", "content": parts }])
}

#[test]
fn images_are_taken_out_in_order_with_the_path_of_their_address() {
    let (taken, left) = taken(json!([
        { "role": "system", "content": "s" },
        { "role": "user", "content": [
            { "type": "image_url", "image_url": { "url": "data:a", "detail": "low" } },
            { "type": "text", "text": "and" },
            { "type": "image_url", "image_url": "data:b", "detail": "high" },
        ] },
        { "role": "tool", "content": [{ "type": "input_image", "image_url": "data:c", "detail": null, "file_id": null }] },
        { "role": "user", "content": [{ "type": "image", "image": "data:d", "detail": "low", "cache_control": {} }] },
        { "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:e", "x": 1 }, "uuid": "u" }] },
    ]));
    let Taken { images, ignored } = taken.unwrap();
    let found: Vec<_> = images.iter().map(|p| (p.param.as_str(), &p.source, p.detail)).collect();
    let url = |text: &str| Source::Url(text.to_owned());
    assert_eq!(
        found,
        [
            ("messages[1].content[0].image_url.url", &url("data:a"), Detail::Low),
            ("messages[1].content[2].image_url", &url("data:b"), Detail::Full),
            ("messages[2].content[0].image_url", &url("data:c"), Detail::Full),
            ("messages[3].content[0].image", &url("data:d"), Detail::Low),
            ("messages[4].content[0].image_url.url", &url("data:e"), Detail::Full),
        ]
    );
    assert_eq!(
        ignored,
        [
            "messages[2].content[0].file_id",
            "messages[3].content[0].cache_control",
            "messages[4].content[0].image_url.x",
            "messages[4].content[0].uuid"
        ]
    );
    assert_eq!(
        left[1]["content"],
        json!([{ "type": "image" }, { "type": "text", "text": "and" }, { "type": "image" }])
    );
}

#[test]
fn a_part_without_an_address_names_the_field() {
    for (part, param) in [
        (json!({ "type": "image" }), "messages[0].content[0].image_url"),
        (json!({ "type": "input_image", "file_id": "f" }), "messages[0].content[0].image_url"),
        (json!({ "type": "image_url", "image_url": null }), "messages[0].content[0].image_url"),
        (json!({ "type": "image_url", "image_url": {} }), "messages[0].content[0].image_url.url"),
        (json!({ "type": "image_url", "image_url": { "url": 5 } }), "messages[0].content[0].image_url.url"),
        (json!({ "type": "image_url", "image_url": ["data:a"] }), "messages[0].content[0].image_url"),
        (
            json!({ "type": "image_url", "image_url": { "url": "a", "detail": "some" } }),
            "messages[0].content[0].image_url.detail",
        ),
        (
            json!({ "type": "image_url", "image_url": { "url": "a", "detail": 1 } }),
            "messages[0].content[0].image_url.detail",
        ),
    ] {
        assert_eq!(taken(user(json!([part]))).0.unwrap_err().param.as_deref(), Some(param), "{part}");
    }
}

#[test]
fn only_messages_of_users_and_tools_hold_images() {
    for role in ["system", "developer", "assistant"] {
        let messages = json!([{ "role": role, "content": [{ "type": "image_url", "image_url": "data:a" }] }]);
        let error = taken(messages).0.unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (RequestErrorKind::Invalid, Some("messages[0].content[0]")));
    }
}

#[test]
fn messages_without_images_are_left_as_they_are() {
    let messages =
        json!([1, null, { "role": 1 }, { "content": "a" }, { "role": "user", "content": [1, { "type": 2 }] }]);
    let (found, left) = taken(messages.clone());
    assert_eq!((found, left), (Ok(Taken::default()), messages));
}

#[test]
fn prompt_objects_give_their_images_and_keep_the_number() {
    let mut prompt = json!([
        "text",
        { "prompt_string": "a", "multimodal_data": ["QQ==", "QUE="] },
        { "prompt_string": "b" },
        { "prompt_string": "c", "multimodal_data": ["QUI="] },
    ]);
    let found = take_from_prompt(&mut prompt).unwrap().images;
    let params: Vec<&str> = found.iter().map(|image| image.param.as_str()).collect();
    assert_eq!(
        params,
        ["prompt[1].multimodal_data[0]", "prompt[1].multimodal_data[1]", "prompt[3].multimodal_data[0]"]
    );
    assert_eq!(found[1].source, Source::Base64("QUE=".to_owned()));
    assert_eq!((&prompt[1]["multimodal_data"], &prompt[2]["multimodal_data"]), (&json!(2), &json!(0)));
    for (mut prompt, param) in [
        (json!({ "prompt_string": "a", "multimodal_data": 3 }), "prompt.multimodal_data"),
        (json!({ "prompt_string": "a", "multimodal_data": [3] }), "prompt.multimodal_data[0]"),
    ] {
        assert_eq!(take_from_prompt(&mut prompt).unwrap_err().param.as_deref(), Some(param));
    }
}

#[test]
fn an_image_is_shrunk_to_what_the_model_takes_or_to_what_was_asked_for() {
    let of = |width, height, detail| {
        let pixels = Rgb { width, height, data: vec![9; (width * height * 3) as usize] };
        let Image { grid, width_px, height_px, rgb, .. } = finish(pixels, &VISION, detail, 16).unwrap();
        assert_eq!(rgb.len() as u32, width_px * height_px * 3);
        (grid.nx, grid.ny, width_px)
    };
    assert_eq!(of(96, 128, Detail::Full), (3, 4, 96), "left as it is");
    assert_eq!(of(1000, 1000, Detail::Full), (8, 8, 271));
    assert_eq!(of(1000, 1000, Detail::Low), (4, 4, 143));
    assert_eq!(of(96, 128, Detail::Low), (3, 4, 96));
}

fn encode(text: &str) -> (Vec<Token>, Tokenizer) {
    let tokenizer = Tokenizer::bytes_for_tests();
    (tokenizer.encode(text, Specials::Parse).unwrap(), tokenizer)
}

#[test]
fn images_stand_at_their_places_in_order_and_each_travels_once() {
    let (tokens, tokenizer) = encode("a<|image_pad|>b<|image_pad|><|image_pad|>c");
    let (one, two) = (image(1, 96, 96), image(2, 96, 128));
    let given = [Arc::clone(&one), Arc::clone(&two), Arc::clone(&one)];
    let Prompt { items, images } = place(&tokens, &given, &tokenizer, "messages").unwrap();
    let shown: Vec<String> = items
        .chunk_by(|a, b| matches!((a.image(), b.image()), (Some(a), Some(b)) if b.index == a.index + 1))
        .map(|run| match run[0].image() {
            Some(row) => format!("{} of {}", run.len(), if row.key == one.key { "one" } else { "two" }),
            None => tokenizer.text(run[0].token().unwrap()),
        })
        .collect();
    assert_eq!(shown, ["a", "9 of one", "b", "12 of two", "9 of one", "c"]);
    assert_eq!(images.iter().map(|p| p.key).collect::<Vec<_>>(), [one.key, two.key]);
}

#[test]
fn text_that_looks_like_a_place_is_text() {
    let (_, tokenizer) = encode("");
    let prompt = format!("{}<|image_pad|>{}", tokenizer.guard("<|image_pad|>"), tokenizer.guard("x<|image_pad|>"));
    let tokens = tokenizer.encode(&prompt, Specials::Parse).unwrap();
    let placed = place(&tokens, &[image(1, 96, 96)], &tokenizer, "messages").unwrap();
    let rows: Vec<usize> = placed.items.iter().enumerate().filter_map(|(i, item)| item.image().map(|_| i)).collect();
    assert_eq!(rows, (13..22).collect::<Vec<_>>());
}

#[test]
fn another_number_of_places_than_images_is_refused() {
    for (text, n) in [("no place", 1), ("a<|image_pad|><|image_pad|>b", 1), ("a<|image_pad|>b", 2)] {
        let (tokens, tokenizer) = encode(text);
        let given = vec![image(1, 96, 96); n];
        let error = place(&tokens, &given, &tokenizer, "messages").unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (RequestErrorKind::NoVision, Some("messages")), "{text}");
        assert!(error.message.contains("chat.template"), "{error}");
        let error = place(&tokens, &given, &tokenizer, "prompt").unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (RequestErrorKind::Invalid, Some("prompt")), "{text}");
    }
    let (tokens, tokenizer) = encode("a<|image_pad|>");
    let error = place(&tokens, &[image(1, 96, 96)], &tokenizer, "prompt").unwrap_err();
    assert!(error.message.contains("ends in an image"), "{error}");
}

#[test]
fn templates_get_the_part_that_they_know() {
    let template = |text: &str| ChatTemplate::new(text.to_owned(), "", "", 1000).unwrap();
    assert_eq!(part_for(&template("{{ p.type == 'image' or p.type == 'image_url' }}")), json!({ "type": "image" }));
    assert_eq!(part_for(&template("{{ \"image\" in p }}")), json!({ "type": "image" }));
    assert_eq!(part_for(&template("plain")), json!({ "type": "image" }));
    assert_eq!(part_for(&template("{{ p.type == 'image_url' }}"))["type"], "image_url");
}

#[test]
fn markers_become_what_templates_print() {
    assert_eq!(marked("a<__media__>b", 1, "p").unwrap(), format!("a{MARKED}b"));
    assert_eq!(marked("a<__media__>b", 0, "p").unwrap(), "a<__media__>b");
    assert_eq!(marked("<__media__>", 2, "p.prompt_string").unwrap_err().param.as_deref(), Some("p.prompt_string"));
}
