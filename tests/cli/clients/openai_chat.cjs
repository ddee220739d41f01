// A chat, a stream and a call of a tool through the npm package openai:
// node openai_chat.cjs BASE_URL, with NODE_PATH. Prints one line of JSON.
const OpenAI = require("openai");

async function main() {
  const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none" });
  const messages = [{ role: "user", content: "Hello" }];
  const ask = (model, more) =>
    client.chat.completions.create({ model, messages, temperature: 0, ...more });
  const plain = await ask("thinks");
  let streamed = "";
  for await (const chunk of await ask("thinks", { stream: true })) {
    streamed += chunk.choices[0].delta.content ?? "";
  }
  const tools = JSON.parse(process.argv[3]);
  const call = (await ask("calls", { tools })).choices[0].message.tool_calls[0];
  const response = await client.responses.create({ model: "thinks", input: "Hello", temperature: 0 });
  const models = [];
  for await (const one of client.models.list()) models.push(one.id);
  let refused = "";
  try {
    await ask("thinks", { top_p: 7 });
  } catch (error) {
    refused = `${error.status} ${error.param}`;
  }
  console.log(
    JSON.stringify({
      text: plain.choices[0].message.content,
      streamed,
      call: [call.function.name, JSON.parse(call.function.arguments)],
      response: response.output_text,
      models: models.sort(),
      refused,
    }),
  );
}

main();
