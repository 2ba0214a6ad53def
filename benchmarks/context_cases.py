"""Fifty written cases: a fact told at turn 2, three like it of other things, and the question at turn 50.

Each takes three lines:
``fact | question``, then two distractors and one. In the first half question and fact share several words; in the second at
most one content word.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    fact: str
    question: str
    distractors: tuple[str, str, str]
    shared_words: bool


_SHARED = """
My daughter's birthday is on the 14th of March. | When is my daughter's birthday?
    My mother's birthday is on the 2nd of July. | My boss has his birthday on the 30th of October.
    Our neighbour's birthday party was on the 9th of January.
The password of the guest network is bluefinch77. | What was the password of the guest network again?
    The code for the garage door is 4410. | My library card number is 88213.
    The alarm in the office is switched off with 9021.
I am allergic to walnuts. | Which nuts am I allergic to?
    My brother cannot stand coriander. | My aunt gets hay fever in May.
    Our cat must not eat onions.
Our flight to Lisbon leaves at 6:40 in the morning. | At what time does our flight to Lisbon leave?
    The train to Ghent leaves at 9:15. | The ferry to Oslo leaves at noon.
    Our bus to the airport leaves at 22:05.
I parked the car on level 3 of the station garage. | On which level of the station garage did I park the car?
    My bicycle is locked behind the bakery. | Tom parked his van in Rose Street.
    The trailer stands in my uncle's barn.
The project Heron has a budget of 48,000 euros. | How large is the budget of project Heron?
    The project Kestrel has a budget of 12,500 euros. | The new kitchen will cost us 9,800 euros.
    The repair of the roof was 3,200 euros.
My landlord's name is Mr Okafor. | What is the name of my landlord?
    My dentist is called Dr Lindqvist. | My piano teacher's name is Mrs Baum.
    The caretaker's name is Mr Rossi.
The recipe needs 250 grams of rye flour. | How much rye flour does the recipe need?
    The soup needs two litres of stock. | The cake takes four eggs.
    The dressing takes a spoon of mustard.
I take 50 milligrams of sertraline every morning. | How many milligrams of sertraline do I take?
    My father takes 5 milligrams of amlodipine. | I give the dog half a tablet against worms.
    My sister takes vitamin D in winter.
The meeting with the Tanaka group is on Thursday in room 12. | In which room is the meeting with the Tanaka group?
    The meeting about salaries is on Monday in room 4. | The choir meets in the parish hall.
    The book club meets at Nadia's flat.
My bicycle has the frame number WX5521. | What is the frame number of my bicycle?
    My passport number ends with 331. | The boiler has the serial number KD-90.
    My car's licence plate is B-LM 204.
We chose the name Juniper for the boat. | Which name did we choose for the boat?
    We call our tent the Igloo. | My first car was named Otto.
    The neighbours named their camper Daisy.
The server runs on Debian with 64 gigabytes of memory. | How much memory does the server have?
    My laptop has 16 gigabytes of memory. | The phone has a battery of 4,500 milliampere hours.
    The backup disk holds 8 terabytes.
Grandma lives at 27 Mill Lane. | What is grandma's house number in Mill Lane?
    My cousin lives at 5 Harbour Road. | The vet is at 80 Castle Street.
    The notary is at 3 Bishop's Square.
I want the report written in British English with short sentences. | In which English should the report be written?
    The letter to the bank should sound formal. | The poster should be yellow.
    The speech for the wedding must be funny.
My favourite tea is lapsang souchong. | What is my favourite tea?
    My favourite colour is teal. | My husband's favourite dessert is trifle.
    My favourite film is Paris, Texas.
The contract with Novatel ends on the 31st of August. | When does the contract with Novatel end?
    The lease of the flat ends in December. | My gym membership ends in two weeks.
    The warranty of the fridge ended last year.
Our dog Pixel weighs 23 kilograms. | How much does our dog Pixel weigh?
    My suitcase weighs 19 kilograms. | The baby weighs 7 kilograms now.
    The parcel weighs 2 kilograms.
The interview for the job at Stellan is with Marta Kovacs. | With whom is the interview for the job at Stellan?
    The call with the insurance is with Ben Archer. | My tennis partner is Ilse.
    The guide in the museum was Pedro.
I run 12 kilometres every Sunday along the canal. | How many kilometres do I run every Sunday?
    I swim 40 lengths on Tuesdays. | My son cycles 8 kilometres to school.
    We hiked 21 kilometres in the Alps.
The secret ingredient of my chili is dark chocolate. | What is the secret ingredient of my chili?
    I put nutmeg into mashed potatoes. | My grandmother put beer into her bread.
    Lena adds ginger to her apple pie.
The wedding of Sofia and Emil is in Bruges. | Where is the wedding of Sofia and Emil?
    The graduation of my niece is in Leeds. | The funeral of my great-uncle was in Turin.
    The class reunion is in Salzburg.
My blood group is A negative. | What is my blood group?
    My shoe size is 43. | My shirt size is medium.
    My glasses have minus 2.5 dioptres.
The tomato plants get water every second evening. | How often do the tomato plants get water?
    The orchid gets water once a week. | The lawn is mown on Fridays.
    The cactus gets water once a month.
The team decided to use PostgreSQL for the billing service. | Which database did the team decide to use for billing?
    The team writes the mobile app in Kotlin. | The web shop is hosted in Frankfurt.
    The company chose Slack for chat.
"""

_APART = """
Peanuts make my throat swell up. | What food do I have to avoid when eating out?
    Loud music gives my brother a headache. | Cold water makes my teeth hurt.
    Coffee keeps my wife awake.
My little girl is called Amelie. | What is my daughter's name?
    My brother's tortoise is called Bruno. | The new teacher is called Mr Stone.
    My bank adviser is called Mrs Petit.
I moved to Rotterdam in spring. | Which city do I live in now?
    My parents spent a summer in Naples. | My colleague flew to Seattle on Monday.
    The team won a match in Zagreb.
I earn my living as a nurse. | What is my profession?
    My neighbour used to be a sailor. | My cousin trains guide dogs.
    Our friend Karl repairs violins.
We are expecting twins in November. | When is the baby due?
    The new tram line opens in February. | The tax return has to be sent in by May.
    Our summer house is let in August.
My knees ache whenever I climb stairs. | Which part of my body causes me pain?
    My mother's hearing got worse. | The dog limps after long walks.
    My uncle lost two fingers at work.
I cannot stand the taste of mushrooms. | Which vegetable do I dislike?
    My son loves spinach. | My wife grows leeks in the garden.
    The market sold fresh asparagus.
Put everything you write for me into French. | In which language should you answer?
    My aunt is learning Korean. | The film was in Danish.
    The manual is in Polish.
I get up at half past four because of my shift. | How early do I have to leave my bed?
    The shop closes at eight in the evening. | The film lasts two hours.
    My lunch break is at noon.
Our old Volvo finally broke down, so we bought a Skoda. | What car do we drive today?
    My brother rides a Yamaha. | The firm leases a Ford van.
    My grandfather drove a tractor.
I vote for whoever builds more bicycle lanes. | Which topic decides my choice at an election?
    My father collects stamps of trains. | The mayor opened a new bridge.
    The council discussed the swimming pool.
The doctor says my sugar is far too high. | What health problem do I have?
    My sister broke her wrist. | My colleague has a cold.
    The vet found a tick on the cat.
I play the cello in an amateur orchestra. | What instrument am I practising?
    My son plays football on Saturdays. | My aunt paints landscapes.
    My friend sings in a band.
I have been a vegetarian since my twenties. | Should you suggest a steak recipe to me?
    My dad fishes for trout. | My neighbour breeds rabbits.
    My cousin smokes ham.
My wife and I split up last winter. | Am I married?
    My parents celebrated forty years together. | My boss adopted a boy.
    My sister got engaged in Rome.
I spend no more than thirty pounds a week on groceries. | What is my budget for food?
    The concert tickets were ninety pounds. | My rent went up by fifty.
    The plumber asked for two hundred.
I am terrified of being up high. | What is my greatest fear?
    My daughter adores spiders. | My dad hates Mondays.
    My friend enjoys horror films.
My native tongue is Hungarian. | Where do I probably come from?
    My dentist studied in Boston. | My neighbour's dog is a Labrador.
    The waiter wore a red tie.
I write thrillers under the name of Max Corvin. | What is my pen name?
    My uncle reads the newspaper aloud. | My niece draws comics.
    The bookshop closed in June.
Since the accident I use a wheelchair. | Why do I need a hotel without steps?
    My friend drives a lorry. | My brother lifts weights.
    The lift at work was repaired.
My exam in organic chemistry is a week from now. | What am I studying for?
    My nephew learns to swim. | My wife attends a pottery class.
    The school bought new computers.
I keep my savings in gold coins. | How do I invest my money?
    My father sold his stamps. | My aunt won at bingo.
    The bank closed its branch.
I only have an induction hob and no oven. | Can I bake bread at home?
    My balcony faces north. | The bath has no window.
    The cellar is damp.
Our boy is in his first year at school. | About how old is our child?
    The cat had kittens. | My grandmother turned ninety.
    The oak is centuries old.
I am teaching my class about volcanoes tomorrow. | Which subject shall I prepare a lesson on?
    My boss gave a talk on taxes. | The museum shows Roman coins.
    The radio spoke about whales.
"""

FILLERS = tuple(
    line.strip().split(" | ")
    for line in """
How do I descale a kettle? | Boil equal parts of vinegar and water, wait, and rinse well.
Explain what a mutex does. | It lets one thread at a time run a section of code.
Give me a synonym for quick. | Swift, rapid or brisk would do.
What is the difference between weather and climate? | Weather is today's state of the air; climate is its average over decades.
How is paper recycled? | It is pulped, cleaned of ink, pressed and dried again.
Suggest a title for a talk about tests. | Trust, but run the suite.
What does a catalyst do? | It speeds up a reaction without being used up.
Who painted the Night Watch? | Rembrandt finished it in 1642.
Translate good evening into Italian. | Buona sera.
How do bees find flowers? | By colour, by scent, and by the dances of other bees.
What is a leap second? | A second that is added to keep clocks in step with the Earth.
How can I stretch my back at a desk? | Sit tall, fold your arms and turn slowly to each side.
What is inflation? | A general rise of prices over time.
Explain the rules of curling briefly. | Two sides slide stones; who lies nearest the middle scores.
Why is the sea salty? | Rivers carry dissolved minerals there and water leaves as vapour.
What is a palindrome? | A word that reads the same both ways, such as level.
How does a zip file shrink things? | It writes repeated pieces once and points back to them.
What is the tallest mountain in Africa? | Kilimanjaro, in Tanzania.
How do I fold a fitted sheet? | Tuck the corners into one another and fold into thirds.
What is a haiku? | A short poem of three lines with five, seven and five syllables.
How do vaccines work? | They show the immune system a harmless part of a germ.
What is an index in a database? | An ordered copy of some columns that makes look-ups fast.
Name a famous bridge. | The Golden Gate Bridge crosses the bay of San Francisco.
How does yeast raise dough? | It eats sugar and gives off gas.
What is the point of a semicolon? | It joins two sentences that belong together.
How far away is the Moon? | About 384,000 kilometres.
How does a heat pump work? | It moves warmth from outside to inside with a compressor.
What does pro bono mean? | Done for the public good, without a fee.
Which planet has the most moons? | Saturn, as far as we know.
How do I tie a bowline? | Make a loop, come up through it, round the standing part and back down.
What is an algorithm? | A finite list of steps that solves a problem.
What was the Silk Road? | A net of trade routes between China and the Mediterranean.
How can I sharpen a pencil without a sharpener? | With a small knife, away from you.
Why do we yawn? | Nobody is sure; it may cool the brain.
What is a fjord? | A long, narrow bay that a glacier has cut.
How does a lighthouse lens work? | It bends the light of a lamp into one flat beam.
What is the chemical symbol of tin? | Sn, from the Latin stannum.
How do noise-cancelling headphones work? | They add the opposite wave of what they hear.
What is a sonnet? | A poem of fourteen lines with a fixed rhyme.
Explain supply and demand. | Prices rise when many want what is rare, and fall when few do.
How is cheese made? | Milk is curdled, drained, salted and aged.
What is the speed of sound? | About 343 metres a second in air.
Why do onions make us cry? | Cutting them frees a gas that stings.
What is a logbook? | A record of what happened, in order.
How does GPS find a place? | By the time that signals of several satellites take.
What is the largest desert? | Antarctica, if cold ones count.
What does an editor do? | Chooses, shortens and improves texts.
How do magnets work? | Tiny currents in their atoms line up.
""".strip().splitlines()
)


def cases() -> tuple[Case, ...]:
    """All fifty, those with shared words first."""
    made: list[Case] = []
    for block, shared in ((_SHARED, True), (_APART, False)):
        lines = block.strip().splitlines()
        for first, second, third in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
            fact, question, one, two, three = (part.strip() for part in f"{first} | {second} | {third}".split("|"))
            made.append(Case(fact, question, (one, two, three), shared))
    return tuple(made)
