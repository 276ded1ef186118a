// The official Node SDK against a running plateau on the demo model. PLATEAU_URL names the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.PLATEAU_URL}/v1`, apiKey: "unused", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const hello = [{ role: "user", content: "Write the number 7 as a word." }];
const still = { reasoning_effort: "none", temperature: 0 };

test("a chat answer, whole and streamed, is the same text", async () => {
  const whole = await client.chat.completions.create({ model, messages: hello, ...still });
  assert.equal(whole.choices[0].finish_reason, "stop");
  assert.match(whole.choices[0].message.content, /seven/);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

  const stream = await client.chat.completions.create({
    model, messages: hello, ...still, stream: true, stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the SDK's stream helper assembles a tool call", async () => {
  const tools = [{
    type: "function",
    function: {
      name: "get_weather",
      description: "Get the weather of a city",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  }];
  const messages = [{ role: "user", content: "What is the weather in Oslo?" }];
  const runner = client.chat.completions.stream({ model, messages, tools, ...still });
  const final = await runner.finalChatCompletion();
  const choice = final.choices[0];
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(choice.message.tool_calls[0].function.name, "get_weather");
  assert.deepEqual(JSON.parse(choice.message.tool_calls[0].function.arguments), { city: "Oslo" });
});

test("an error arrives as the SDK's typed error with the field's name", async () => {
  await assert.rejects(
    client.chat.completions.create({ model, messages: hello, temperature: -1 }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature",
  );
});

test("text completion and logprobs", async () => {
  const answer = await client.completions.create({ model, prompt: "def add(a, b):\n    return", max_tokens: 8, temperature: 0, logprobs: 2 });
  assert.equal(answer.choices[0].logprobs.tokens.length, answer.usage.completion_tokens);
});

test("aborting a stream frees its sequence", async () => {
  const controller = new AbortController();
  const stream = await client.chat.completions.create(
    { model, messages: [{ role: "user", content: "Count from 1 to 500." }], max_tokens: 4000, ignore_eos: true, stream: true },
    { signal: controller.signal },
  );
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content || chunk.choices[0]?.delta?.reasoning_content) { controller.abort(); break; }
  }
  const idle = async () => (await (await fetch(`${process.env.PLATEAU_URL}/sequences`)).json()).sequences.every((s) => s.phase === "idle");
  for (let tries = 0; tries < 200; tries += 1) {
    if (await idle()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail("the sequence is still busy");
});
