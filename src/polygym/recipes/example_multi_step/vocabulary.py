"""Terms, their synonyms, and sentences that mean a term without naming it.

No word belongs to two terms, no two words of a term have one value, and no sentence holds a word of the list.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A term, its synonyms, and messages that it fits."""

    name: str
    synonyms: tuple[str, ...]
    messages: tuple[str, ...]


TERMS = (
    Term("Hot", ("Boiling", "Scorching", "Sweltering", "Torrid"),
         ("This soup burns my tongue.", "We are all sweating in here.")),
    Term("Cold", ("Freezing", "Chilly", "Wintry", "Glacial"),
         ("My fingers have turned blue.", "There is ice on the inside of the window.")),
    Term("Fast", ("Rapid", "Speedy", "Brisk", "Swift"),
         ("The train passed before I could read its number.", "She ran the mile in four minutes.")),
    Term("Slow", ("Plodding", "Unhurried", "Lagging", "Crawling"),
         ("The queue has not moved for an hour.", "Even a snail would overtake this bus.")),
    Term("Happy", ("Joyful", "Merry", "Delighted", "Glad"),
         ("I have been smiling since the letter came.", "The children sang and danced all evening.")),
    Term("Sad", ("Gloomy", "Tearful", "Mournful", "Downcast"),
         ("I cried through the whole film.", "Nobody could cheer him up after the funeral.")),
    Term("Loud", ("Deafening", "Thunderous", "Booming", "Roaring"),
         ("My ears still ring from the concert.", "I had to cover my ears when the alarm went off.")),
    Term("Quiet", ("Silent", "Muted", "Noiseless", "Hushed"),
         ("You could have heard a pin drop.", "There is not a sound in the library.")),
    Term("Big", ("Huge", "Giant", "Massive", "Enormous"),
         ("The whale was longer than three buses.", "We could not see the top of the tower.")),
    Term("Small", ("Tiny", "Petite", "Minute", "Compact"),
         ("I need a magnifying glass to see it.", "The house would fit into a matchbox.")),
    Term("Rich", ("Wealthy", "Affluent", "Moneyed", "Prosperous"),
         ("He bought the yacht without asking for the price.", "They own half of the city.")),
    Term("Poor", ("Needy", "Penniless", "Destitute", "Broke"),
         ("I cannot pay the rent again.", "There was not a coin left in the house.")),
    Term("Brave", ("Daring", "Fearless", "Heroic", "Valiant"),
         ("She jumped into the river to save the dog.", "He walked up to the lion without a blink.")),
    Term("Afraid", ("Scared", "Timid", "Frightened", "Fearful"),
         ("I slept with the lights on after that story.", "The cat hid below the bed when the guests came.")),
    Term("Tired", ("Weary", "Drowsy", "Exhausted", "Sleepy"),
         ("I yawned through the whole meeting.", "After the march they fell asleep in their boots.")),
    Term("Angry", ("Furious", "Enraged", "Irate", "Cross"),
         ("He slammed the door and shouted.", "My boss turned red and threw the report away.")),
    Term("Clean", ("Spotless", "Washed", "Tidy", "Pristine"),
         ("You could eat from this floor.", "Every plate in the kitchen sparkles.")),
    Term("Dirty", ("Filthy", "Grimy", "Stained", "Mucky"),
         ("There is mud all over the carpet.", "The shirt was white before he worked on the engine.")),
    Term("Wet", ("Soggy", "Drenched", "Moist", "Dripping"),
         ("I forgot my umbrella and it poured.", "The towels are still not fit for use.")),
    Term("Dry", ("Arid", "Parched", "Rainless", "Dusty"),
         ("It has not rained for a year.", "The river bed is nothing but cracks.")),
    Term("Old", ("Ancient", "Aged", "Antique", "Vintage"),
         ("The bridge was built by the Romans.", "My grandmother wore this coat as a girl.")),
    Term("New", ("Modern", "Fresh", "Recent", "Novel"),
         ("The paint has hardly had time to set.", "It came out last week and nobody has seen it yet.")),
    Term("Strong", ("Mighty", "Sturdy", "Robust", "Powerful"),
         ("She lifts twice her own weight.", "The rope held the whole ship.")),
    Term("Weak", ("Feeble", "Frail", "Delicate", "Puny"),
         ("He could not lift the cup any more.", "One touch and the chair fell apart.")),
    Term("Easy", ("Simple", "Effortless", "Light", "Painless"),
         ("A child could solve this puzzle.", "I finished the test in two minutes.")),
    Term("Difficult", ("Hard", "Tricky", "Demanding", "Arduous"),
         ("Nobody in the class could solve the problem.", "It took them ten years to climb that wall.")),
    Term("Bright", ("Radiant", "Shiny", "Dazzling", "Luminous"),
         ("I need sunglasses to look at that lamp.", "The diamond threw sparks of colour.")),
    Term("Dark", ("Dim", "Murky", "Unlit", "Shadowy"),
         ("I could not see my hand before my face.", "The lamps are out in the whole street.")),
    Term("Begin", ("Start", "Launch", "Commence", "Open"),
         ("The band is on stage and lifts its instruments.", "Everyone is seated, let the show roll.")),
    Term("Finish", ("End", "Conclude", "Complete", "Close"),
         ("One more line and the book is done.", "The judge thanks all and sends them home.")),
    Term("Clever", ("Smart", "Brainy", "Astute", "Gifted"),
         ("She speaks nine languages and is only six.", "He saw through the trick at once.")),
    Term("Foolish", ("Silly", "Unwise", "Absurd", "Daft"),
         ("He put his phone into the oven to warm it up.", "They went to sea in a paper boat.")),
)  # fmt: skip
