//! From an answer to a program: the code of a function and the problem's tests.

use super::problem::Problem;

/// The program that ends without an error exactly when the answer is right, or nothing where the answer has no code.
///
/// What stands before the function in the prompt (imports, functions that it may use) stands before the answer too.
pub(super) fn program(problem: &Problem, answer: &str) -> Option<String> {
    let head = format!("def {}(", problem.entry_point);
    let blocks = blocks(answer);
    let whole = blocks.iter().rev().find(|block| block.contains(&head)).copied();
    let whole = whole.or_else(|| answer.contains(&head).then_some(answer).filter(|_| blocks.is_empty()));
    let function = match whole {
        Some(code) => {
            let before = problem.prompt.rfind(&head).map_or("", |at| &problem.prompt[..at]);
            format!("{before}\n{code}")
        }
        // A body alone goes on where the prompt ends.
        None => {
            let body = blocks.iter().copied().max_by_key(|block| block.len()).unwrap_or(answer);
            let body = body.trim_end();
            if !body.lines().any(|line| line.starts_with([' ', '\t'])) {
                return None;
            }
            format!("{}{body}", problem.prompt)
        }
    };
    Some(format!("{function}\n\n{}\n\ncheck({})\n", problem.test, problem.entry_point))
}

/// The insides of fenced blocks. One that is not closed ends with the text.
fn blocks(answer: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            match open.take() {
                Some(start) => found.push(&answer[start..at]),
                None => open = Some(at + line.len()),
            }
        }
        at += line.len();
    }
    found.extend(open.map(|start| &answer[start..]));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(answer: &str) -> Option<String> {
        let problem = Problem {
            task_id: "t".to_owned(),
            prompt: "import math\n\ndef f(x):\n    \"\"\" Twice. \"\"\"\n".to_owned(),
            entry_point: "f".to_owned(),
            test: "def check(c): assert c(1) == 2".to_owned(),
            canonical_solution: None,
        };
        program(&problem, answer)
    }

    #[test]
    fn the_last_block_with_the_function_is_taken_with_what_the_prompt_has_before_it() {
        let text = made("Not this:\n```python\ndef f(x): return 1\n```\nbut\n```python\ndef f(x): return 2 * x\n```\n```\nf(1)\n```").unwrap();
        assert!(text.starts_with("import math\n\n\ndef f(x): return 2 * x\n"), "{text}");
        assert!(text.ends_with("check(f)\n") && !text.contains("return 1"), "{text}");
        assert!(made("def f(x):\n    return 2 * x").unwrap().contains("return 2 * x\n\ndef check"));
        assert!(made("```python\ndef f(x):\n    return 2 *").unwrap().contains("return 2 *\n"));
    }

    #[test]
    fn a_body_goes_on_where_the_prompt_ends_and_prose_is_no_code() {
        assert!(made("```\n    return 2 * x\n```").unwrap().contains("Twice. \"\"\"\n    return 2 * x\n"));
        assert_eq!(made("I cannot do that."), None);
        assert_eq!(made(""), None);
        assert_eq!(made("```python\nprint(1)\n```"), None);
    }
}
